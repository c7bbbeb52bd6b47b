// The page in a real browser: it draws, chooses, opens, copies, and what is hostile stays text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "report/page/page.hpp"
#include "tests/report/browser.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using nlohmann::json;
using test::Browser;
using test::RunFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string layer(int i) { return fmt::format("decoder.layers.{}.fc1", i); }

/// Eight layers, sixty iterations, two statistics, a histogram; from iteration 20 on layer 3 saturates.
void write_run(const RunFolder& folder) {
  folder.describe();
  for (int i = 0; i < 60; ++i) {
    for (int n = 1; n <= 8; ++n) {
      folder.record(i, layer(n), "activation",
                    fmt::format(R"("saturated_energy%":{},"rms":{},"histogram_2^-1":{},"histogram_2^0":7)",
                                n == 3 && i >= 20 ? 30 : 0.001 * n, n + std::sin(i), i + 1));
    }
    folder.healthy_step(i, 5 - 0.05 * i);
  }
}

class PageInABrowser : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto program = Browser::installed()) browser_ = std::make_unique<Browser>(*program);
  }
  static void TearDownTestSuite() { browser_.reset(); }
  void SetUp() override {
    if (browser_ == nullptr) GTEST_SKIP() << "no Chromium here: apt-get install chromium-headless-shell";
  }
  void TearDown() override {
    if (browser_ == nullptr) return;
    EXPECT_THAT(browser_->complaints(), IsEmpty());
    EXPECT_THAT(browser_->requests(), ElementsAre("file://" + file().string()));
  }
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "report.html"; }
  Verdict open() const {
    Verdict verdict = write_page(folder_.path(), file());
    browser_->open(file());
    return verdict;
  }
  static json ask(const std::string& expression) { return browser_->evaluate(expression); }
  static std::string text(const std::string& id) {
    return ask(fmt::format("document.getElementById('{}').textContent", id));
  }
  /// How many colours the canvas has.
  static int colours(const std::string& selector) {
    return ask(
        fmt::format("(() => {{ const c = document.querySelector('{}'); const d = new Uint32Array("
                    "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
                    "return new Set(d).size; }})()",
                    selector));
  }
  /// Until what the page does on the next frame is done.
  static void settle() {
    ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
  }
  static std::string picture() { return ask("document.getElementById('heat').toDataURL()"); }
  static void choose(const std::string& id, const std::string& value) {
    ask(
        fmt::format("(() => {{ const s = document.getElementById('{}'); s.value = '{}';"
                    "s.dispatchEvent(new Event('change')); }})()",
                    id, value));
  }
  /// Clicks into the middle of a row of the map.
  static void click_row(int row, int rows) {
    const json box =
        ask("(() => { document.getElementById('heat').scrollIntoView({block: 'center'});"
            "const b = document.getElementById('heat').getBoundingClientRect(); return [b.left, b.top, "
            "b.width, b.height]; })()");
    const double height = box.at(3).get<double>() - 34;  // the axis below and the mark above
    browser_->click(box.at(0).get<double>() + box.at(2).get<double>() * 0.7,
                    box.at(1).get<double>() + 16 + height * (row + 0.5) / rows);
  }

  const RunFolder folder_;
  static std::unique_ptr<Browser> browser_;
};
std::unique_ptr<Browser> PageInABrowser::browser_;

TEST_F(PageInABrowser, SaysTheVerdictAndDrawsWhereItIs) {
  write_run(folder_);
  const Verdict verdict = open();
  ASSERT_TRUE(verdict.cause.has_value());
  ASSERT_EQ(verdict.cause->kind, "saturation");
  EXPECT_EQ(text("outcome"), "Found");
  EXPECT_THAT(text("facts"), HasSubstr("iteration 20"));
  EXPECT_THAT(text("facts"), HasSubstr(layer(3)));
  EXPECT_EQ(ask("document.getElementById('stat').value"), "saturated_energy%");
  EXPECT_EQ(text("detail_heading"), layer(3) + " activation");
  EXPECT_GT(colours("#heat"), 5);
  EXPECT_GT(colours("#first_charts canvas"), 3);
  EXPECT_GT(colours("#detail_series canvas"), 3);
  EXPECT_GT(colours("#detail_histogram canvas"), 3);
  EXPECT_GT(colours("#legend"), 50);
}

TEST_F(PageInABrowser, AnotherStatisticIsAnotherPictureAndSoIsAnotherScale) {
  write_run(folder_);
  static_cast<void>(open());
  const std::string before = picture();
  choose("stat", "rms");
  EXPECT_THAT(text("map_note"), HasSubstr("rms of activation, 8 layers"));
  const std::string linear = picture();
  EXPECT_TRUE(linear != before);
  choose("stat", "saturated_energy%");
  EXPECT_TRUE(picture() == before);
  choose("scale", "linear");
  EXPECT_TRUE(picture() != before);
  EXPECT_EQ(ask("[...document.querySelectorAll('#stat option')].map((o) => o.value)"),
            json::array({"rms", "saturated_energy%"}));  // bins of a histogram are no statistic to choose
}

TEST_F(PageInABrowser, AClickOpensTheRowAndKeysDoToo) {
  write_run(folder_);
  static_cast<void>(open());
  click_row(5, 8);
  EXPECT_EQ(text("detail_heading"), layer(6) + " activation");
  EXPECT_THAT(text("readout"), HasSubstr(layer(6)));
  ask("document.getElementById('heat').focus()");
  browser_->press("ArrowDown");
  browser_->press("Home");
  EXPECT_EQ(text("readout"), "0.007 saturated_energy% of activation, iteration 0" + layer(7));
  browser_->press("Enter");
  EXPECT_EQ(text("detail_heading"), layer(7) + " activation");
  browser_->press("End");
  EXPECT_THAT(text("readout"), HasSubstr("iteration 59"));
}

// The other run is of one rank, has another recipe, and twice the rms in layer 5 from iteration 10 on.
TEST_F(PageInABrowser, ShowsAnotherRunBesideThisOne) {
  write_run(folder_);
  const RunFolder other;
  other.describe(R"("recipe":"mxfp8")");
  for (int i = 0; i < 60; ++i) {
    for (int n = 1; n <= 8; ++n) {
      other.record(i, layer(n), "activation",
                   fmt::format(R"("saturated_energy%":{},"rms":{})", n == 3 && i >= 20 ? 30 : 0.001 * n,
                               (n == 5 && i >= 10 ? 2 : 1) * (n + std::sin(i))));
    }
    other.healthy_step(i, 5 - 0.05 * i);
  }
  static_cast<void>(open());
  EXPECT_EQ(ask("document.getElementById('against_section').hidden"), true);
  EXPECT_EQ(ask("document.querySelectorAll('.keys .there').length"), 0);
  const Against against = read_against(folder_.path(), other.path());
  static_cast<void>(write_page(folder_.path(), file(), &against));
  browser_->open(file());
  EXPECT_EQ(ask("document.getElementById('against_section').hidden"), false);
  EXPECT_EQ(text("against_heading"), "Against " + other.path().string());
  EXPECT_THAT(text("against_sentence"), HasSubstr("They part at iteration 10: " + layer(5) + " activation"));
  EXPECT_THAT(text("against_sentence"), HasSubstr(" here and "));
  EXPECT_THAT(text("against"), HasSubstr("2^1")) << "the ratio is named";
  EXPECT_THAT(text("against"), HasSubstr("option recipe"));
  EXPECT_EQ(ask("[...document.querySelectorAll('#against table')][0].rows.length"), 2) << "one place";
  // The place is opened with its statistic, both runs in one chart; nothing is lost of what was there.
  EXPECT_NE(text("detail_heading"), layer(5) + " activation");
  ask("document.querySelector('#against button.link').click()");
  settle();
  EXPECT_EQ(text("detail_heading"), layer(5) + " activation");
  EXPECT_EQ(ask("document.getElementById('stat').value"), "rms");
  EXPECT_THAT(text("detail_series"), HasSubstr("there"));
  EXPECT_THAT(std::string(ask("document.querySelector('#detail_series canvas').getAttribute('aria-label')")),
              HasSubstr("rms there over iterations 0 to 59"));
  const int both = colours("#detail_series canvas");
  EXPECT_GT(both, 5);
  EXPECT_THAT(std::string(ask("document.querySelector('#first_charts canvas').getAttribute('aria-label')")),
              HasSubstr("loss there"));
}

TEST_F(PageInABrowser, CopiesTheYaml) {
  write_run(folder_);
  const Verdict verdict = open();
  ASSERT_TRUE(verdict.cause.has_value());
  ASSERT_NE(verdict.cause->yaml, "");
  browser_->call("Browser.grantPermissions",
                 {{"permissions", {"clipboardReadWrite", "clipboardSanitizedWrite"}}});
  const json at =
      ask("(() => { const b = document.getElementById('copy_yaml'); b.scrollIntoView({block: 'center'});"
          "const r = b.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()");
  browser_->click(at.at(0), at.at(1));
  EXPECT_EQ(
      ask("new Promise((done) => { const wait = () => document.getElementById('copy_yaml').textContent === "
          "'Copied' ? done('Copied') : setTimeout(wait, 20); wait(); })"),
      "Copied");
  EXPECT_EQ(ask("navigator.clipboard.readText()"), verdict.cause->yaml);
}

TEST_F(PageInABrowser, ValuesPerRankWhereTheyDiffer) {
  folder_.describe();
  for (int i = 0; i < 4; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      folder_.line(fmt::format(R"({{"iteration":{},"layer":"a","tensor":"output","phase":"forward",)"
                               R"("stats":{{"sqnr":{}}},"group":[{}]}})",
                               i, 30 + rank, rank),
                   rank);
    }
    folder_.healthy_step(i);
  }
  static_cast<void>(open());
  EXPECT_THAT(text("detail_ranks"), HasSubstr("Values per rank, which differ"));
  EXPECT_EQ(ask("[...document.querySelectorAll('#detail_ranks tbody tr')].map((r) => r.textContent)"),
            json::array({"0303030", "1313131"}));
}

TEST_F(PageInABrowser, TheMapIsThereAsATableAndInTheDark) {
  write_run(folder_);
  static_cast<void>(open());
  const json rows =
      ask("new Promise((done) => { const d = document.getElementById('table_details');"
          "d.addEventListener('toggle', () => setTimeout(() => done([...d.querySelectorAll('tbody tr')]"
          ".map((r) => r.textContent)), 0)); d.open = true; })");
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows.at(2), layer(3) + "0.0030.003 at 030 at 2030");
  const std::string light = picture();
  const json ground = ask("getComputedStyle(document.documentElement).backgroundColor");
  browser_->call("Emulation.setEmulatedMedia",
                 {{"features", json::array({{{"name", "prefers-color-scheme"}, {"value", "dark"}}})}});
  EXPECT_NE(ask("getComputedStyle(document.documentElement).backgroundColor"), ground);
  settle();
  EXPECT_TRUE(picture() != light);
  browser_->call("Emulation.setEmulatedMedia",
                 {{"media", "print"},
                  {"features", json::array({{{"name", "prefers-color-scheme"}, {"value", "dark"}}})}});
  EXPECT_EQ(ask("getComputedStyle(document.documentElement).backgroundColor"), "rgb(255, 255, 255)");
  browser_->call("Emulation.setEmulatedMedia", {{"media", ""}, {"features", json::array()}});
}

TEST_F(PageInABrowser, HostileNamesStayText) {
  const std::string name = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>";
  folder_.describe();
  for (int i = 0; i < 3; ++i) {
    folder_.record(i, name, "<img src=y onerror=z>", R"("<b>rms</b>":1)");
    folder_.healthy_step(i);
  }
  folder_.finding(1, "I1", name, "<img src=y onerror=z>", "0", "<img src=x onerror='window.ran = 3'>");
  EXPECT_EQ(open().outcome, Outcome::kFound);
  EXPECT_EQ(ask("window.ran === undefined"), true);
  EXPECT_EQ(ask("document.querySelectorAll('img, b b, main script').length"), 0);
  EXPECT_EQ(ask("document.scripts.length"), 2);
  EXPECT_EQ(text("detail_heading"), name + " <img src=y onerror=z>");
  EXPECT_THAT(text("findings"), HasSubstr("<img src=x onerror='window.ran = 3'>"));
  // Even where markup got into the page, the policy would not let it run.
  ask("(() => { const d = document.createElement('div'); d['inner' + 'HTML'] = `<img src=\"data:,\" "
      "onerror=\"window.ran = 4\">`;"
      "document.body.append(d); return new Promise((done) => setTimeout(done, 100)); })()");
  EXPECT_EQ(ask("window.ran === undefined"), true);
  EXPECT_THAT(browser_->complaints(), ::testing::Not(IsEmpty()));
  static_cast<void>(open());  // what was tried here is not the page's complaint
}

TEST_F(PageInABrowser, TwoThousandLayersAreOnePictureAndCanBeWalkedThrough) {
  folder_.describe();
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    for (int n = 1; n <= 2000; ++n) {
      lines += fmt::format(
          R"({{"iteration":{},"layer":"{}","tensor":"weight","phase":"forward","stats":{{"rms":{}}},)"
          R"("group":[0]}})"
          "\n",
          i, layer(n), n == 1234 && i == 7 ? 1e6 : 1 + n * 0.001);
    }
  }
  folder_.write("metrics/rank_0.jsonl", lines);
  folder_.healthy_step(0);
  static_cast<void>(open());
  EXPECT_THAT(text("map_note"), HasSubstr("2,000 layers"));
  EXPECT_LT(ask("document.getElementById('heat').height"), 1000);
  EXPECT_GT(colours("#heat"), 20);
  // The one cell of one layer is to be seen although three layers share a row of pixels: the ramp's last
  // colour.
  EXPECT_EQ(ask("(() => { const c = document.getElementById('heat'); const d = c.getContext('2d')"
                ".getImageData(0, 0, c.width, c.height).data; const l = document.getElementById('legend');"
                "const e = l.getContext('2d').getImageData(34 + 189, 6, 1, 1).data; let n = 0;"
                "for (let i = 0; i < d.length; i += 4) if (d[i] === e[0] && d[i + 1] === e[1] && d[i + 2] "
                "=== e[2]) ++n;"
                "return n > 10 && n < 200; })()"),
            true);
  choose("rows", "names");
  ask("document.getElementById('heat').focus()");
  for (int i = 0; i < 10; ++i) browser_->press("PageDown");
  EXPECT_THAT(text("readout"), HasSubstr("decoder.layers.101.fc1"));
  EXPECT_GT(ask("document.getElementById('heat_scroll').scrollTop"), 500);
}

}  // namespace
}  // namespace amaxscope::report
