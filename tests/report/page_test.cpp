// The file: its data, what hostile names cannot do in it, and its size.
#include "report/page/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "report/page/page_json.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using nlohmann::json;
using test::RunFolder;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What stands between the tags of the data.
std::string data_of(const std::string& html) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = html.find(open) + open.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

/// The floats of base64, decoded apart from the code under test.
std::vector<float> floats_of(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6U | static_cast<unsigned>(digits.find(c));
    have += 6;
    if (have >= 8) bytes += static_cast<char>(bits >> (have -= 8) & 255U);
  }
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

TEST(Base64, KnownBytes) {
  EXPECT_EQ(base64_of({}), "");
  const std::vector<float> one = {1.0F};  // 00 00 80 3f
  EXPECT_EQ(base64_of(one), "AACAPw==");
  const std::vector<float> three = {1.0F, -2.0F, 0.5F};  // 00 00 80 3f 00 00 00 c0 00 00 00 3f
  EXPECT_EQ(base64_of(three), "AACAPwAAAMAAAAA/");
}

TEST(Page, HoldsTheNumbersOfAllStagesOnceAndInOrder) {
  const RunFolder folder;
  folder.describe();
  for (int i = 0; i < 3; ++i) {
    folder.record(i, "decoder.layers.2.fc1", "weight", fmt::format(R"("rms":{})", i + 0.25));
    folder.line(
        fmt::format(R"({{"iteration":{},"layer":"decoder.layers.1.fc1","tensor":"weight","phase":"forward",)"
                    R"("stats":{{"rms":{}}},"group":[1]}})",
                    i, i + 0.5),
        1);
    folder.healthy_step(i);
  }
  const std::filesystem::path file = folder.path() / "page.html";
  EXPECT_EQ(write_page(folder.path(), file).outcome, Outcome::kHealthy);
  const json data = json::parse(data_of(text_of(file)));
  EXPECT_EQ(data.at("layers"), json::array({"decoder.layers.1.fc1", "decoder.layers.2.fc1"}));
  EXPECT_EQ(data.at("verdict").at("outcome"), "healthy");
  ASSERT_EQ(data.at("planes").size(), 1U);
  const json& plane = data.at("planes").at(0);
  EXPECT_EQ(data.at("stats").at(plane.at("stat").get<std::size_t>()), "rms");
  EXPECT_FALSE(plane.contains("ranks"));
  ASSERT_EQ(plane.at("rows").size(), 2U);
  const json& first = plane.at("rows").at(0);
  EXPECT_EQ(first.at(0), 0);
  EXPECT_EQ(data.at("axes").at(first.at(1).get<std::size_t>()), json::array({0, 1, 2}));
  EXPECT_EQ(floats_of(first.at(2)), (std::vector<float>{0.5F, 1.5F, 2.5F}));
  EXPECT_EQ(first.at(3), 0);  // smallest and largest are the same
  EXPECT_EQ(floats_of(plane.at("rows").at(1).at(2)), (std::vector<float>{0.25F, 1.25F, 2.25F}));
  EXPECT_EQ(data.at("scalars").size(), 2U);  // loss and grad_norm; comparisons of checks are no curve
}

TEST(Page, HoldsAnotherRunWithItsOwnNames) {
  const RunFolder here;
  const RunFolder there;
  for (const RunFolder* folder : {&here, &there}) {
    folder->describe();
    if (folder == &there) folder->record(0, "only.there", "weight", R"("std":9)");
    for (int i = 0; i < 3; ++i) {
      folder->record(i, "a.fc1", "weight", fmt::format(R"("rms":{})", i == 2 && folder == &there ? 8 : 1));
      folder->healthy_step(i);
    }
  }
  const std::filesystem::path file = here.path() / "page.html";
  const Against against = read_against(here.path(), there.path());
  EXPECT_EQ(write_page(here.path(), file, &against).outcome, Outcome::kHealthy) << "it is not judged";
  const std::string html = text_of(file);
  const json data = json::parse(data_of(html)).at("against");
  EXPECT_EQ(data.at("name"), there.path().string());
  EXPECT_EQ(data.at("diff").at("first").at(0).at("iteration"), 2);
  EXPECT_EQ(data.at("diff").at("sentence"),
            "they part at iteration 2: a.fc1 weight (forward), rms is 1 here and 8 there");
  EXPECT_FALSE(data.at("diff").contains("noise"));
  EXPECT_EQ(data.at("layers"), json::array({"only.there", "a.fc1"}));
  ASSERT_EQ(data.at("planes").size(), 2U);
  for (const json& plane : data.at("planes")) {
    const json& row = plane.at("rows").at(0);
    const bool rms = data.at("stats").at(plane.at("stat").get<std::size_t>()) == "rms";
    EXPECT_EQ(data.at("layers").at(row.at(0).get<std::size_t>()), rms ? "a.fc1" : "only.there");
    EXPECT_EQ(floats_of(row.at(2)), rms ? (std::vector<float>{1, 1, 8}) : (std::vector<float>{9}));
  }
  EXPECT_THAT(html, HasSubstr("\nagainst       " + there.path().string() + ": they part at iteration 2"))
      << "also where no script runs";
  EXPECT_THROW(read_against(here.path(), here.path() / "nothing"), Error);
}

TEST(Page, NamesOfAnybodyStayData) {
  const RunFolder folder;
  folder.describe();
  const std::string name = "</script><script>x()</script><img src=x onerror=x()>&amp;<!--@THE_DATA@";
  folder.record(0, name, "weight", R"("rms":1,"<b>stat</b>":2)");
  folder.record(0, "\xff\xfe\xe2\x80\xa8", "weight", R"("rms":1)");
  folder.finding(0, "I1", name, "<i>", "0", "</pre></noscript><script>y()</script>");
  folder.healthy_step(0);
  const std::filesystem::path file = folder.path() / "page.html";
  EXPECT_EQ(write_page(folder.path(), file).outcome, Outcome::kFound);
  const std::string html = text_of(file);
  EXPECT_THAT(html, Not(HasSubstr("<script>x()")));
  EXPECT_THAT(html, Not(HasSubstr("<script>y()")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<b>stat")));
  EXPECT_EQ(count(html, "</script>"), 2U);
  EXPECT_EQ(count(html, "</noscript>"), 1U);
  const std::string data = data_of(html);
  EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
  const json layers = json::parse(data).at("layers");
  EXPECT_THAT(layers.get<std::vector<std::string>>(), ::testing::Contains(name));
}

TEST(Page, AsksForNothingOutsideOfItself) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  const std::filesystem::path file = folder.path() / "page.html";
  static_cast<void>(write_page(folder.path(), file));
  const std::string html = text_of(file);
  EXPECT_THAT(html, HasSubstr("default-src 'none'; script-src 'sha256-"));
  for (const char* outside :
       {"http://", "https://", "src=", "@import", "url(", "unsafe-inline", "innerHTML", "eval("})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(Page, ARunWithoutDataGetsNone) {
  const RunFolder folder;
  EXPECT_EQ(write_page(folder.path(), folder.path() / "page.html").outcome, Outcome::kNoData);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "page.html"));
}

TEST(Page, AnUnwritablePlaceIsAnError) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  try {
    static_cast<void>(write_page(folder.path(), folder.path() / "nowhere" / "page.html"));
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("nowhere/page.html: cannot be written"));
  }
}

TEST(Page, TwoThousandLayersAndAThousandIterationsAreSomeMegabytes) {
  Evidence evidence;
  PageData data;
  RecordLine record;
  record.tensor = "activation";
  record.phase = "forward";
  std::uint64_t noise = 1;
  for (std::int64_t iteration = 0; iteration < 1000; ++iteration) {
    record.iteration = iteration;
    for (int layer = 0; layer < 2000; ++layer) {
      record.layer = fmt::format("decoder.layers.{}.fc1", layer);
      for (const char* stat : {"cur_amax", "sqnr", "saturated%"}) {
        noise = noise * 6364136223846793005U + 1442695040888963407U;
        record.stats[stat] = static_cast<double>(noise >> 40U);
      }
      data.record(record);
    }
  }
  Reading reading;
  reading.completed_steps = 1000;
  const std::string html = page_html(judge(evidence, std::move(reading)), evidence, data);
  EXPECT_EQ(data.left_out(), 0U);
  EXPECT_LT(html.size(), 8'000'000U);
  const json parsed = json::parse(data_of(html));
  ASSERT_EQ(parsed.at("planes").size(), 3U);
  for (const json& plane : parsed.at("planes")) {
    EXPECT_EQ(plane.at("rows").size(), 2000U);
    EXPECT_EQ(plane.at("shift"), 4);  // 6000 series times 1000 / 16 = 63 are 378000 buckets
  }
}

}  // namespace
}  // namespace amaxscope::report
