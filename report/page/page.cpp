#include "report/page/page.hpp"

#include "report/diff_text.hpp"
#include "report/page/page_json.hpp"
#include "report/page/page_parts.hpp"
#include "report/verdict_text.hpp"
#include "runtime/storage/file.hpp"

namespace amaxscope::report {

namespace {

/// Hands every line to both.
class Both final : public RecordVisitor {
 public:
  Both(RecordVisitor& first, RecordVisitor& second) : first_(first), second_(second) {}
  void record(const RecordLine& line) override {
    first_.record(line);
    second_.record(line);
  }
  void scalars(std::int64_t iteration, const std::map<std::string, double>& values) override {
    first_.scalars(iteration, values);
    second_.scalars(iteration, values);
  }
  void finding(const FindingLine& line) override {
    first_.finding(line);
    second_.finding(line);
  }

 private:
  RecordVisitor& first_;
  RecordVisitor& second_;
};

}  // namespace

std::string page_html(const Verdict& verdict, const Evidence& evidence, const PageData& data,
                      const Against* against) {
  // Cut at both places before anything is put in: what is put in may hold the words that mark a place.
  const std::string_view page = page_template();
  const std::size_t text = page.find(kPlaceOfText);
  const std::size_t json = page.find(kPlaceOfData);
  std::string html(page.substr(0, text));
  html += escaped_html(as_text(verdict));
  if (against != nullptr) html += escaped_html("\n" + as_short_text(against->diff, against->name));
  html += page.substr(text + kPlaceOfText.size(), json - text - kPlaceOfText.size());
  html += page_json(verdict, evidence, data, against);
  html += page.substr(json + kPlaceOfData.size());
  return html;
}

Against read_against(const std::filesystem::path& log_dir, const std::filesystem::path& other) {
  // Half of what a page may hold: it comes on top of the page's own run.
  PageLimits limits;
  limits.stat_buckets /= 2;
  limits.series /= 2;
  limits.histogram_buckets /= 2;
  Against against{.name = other.string(), .diff = compare_runs(log_dir, other), .data = PageData(limits)};
  static_cast<void>(read_records(other, against.data));
  return against;
}

Verdict write_page(const std::filesystem::path& log_dir, const std::filesystem::path& file,
                   const Against* against) {
  Evidence evidence;
  PageData data;
  Both both(evidence, data);
  Reading reading = read_records(log_dir, both);
  Verdict verdict = judge(evidence, std::move(reading));
  if (verdict.outcome == Outcome::kNoData) return verdict;
  OutputFile output(file);
  output.write(page_html(verdict, evidence, data, against));
  output.commit();
  return verdict;
}

}  // namespace amaxscope::report
