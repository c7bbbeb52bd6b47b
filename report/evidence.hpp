// What the rules judge by: the findings of a run, merged over ranks, and the statistics that speak, as
// series. Memory is bounded whatever the files hold; what did not fit is counted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "report/records.hpp"
#include "report/series.hpp"

namespace amaxscope::report {

/// One check's findings about one tensor: of its first iteration, from all ranks that have it.
struct Found {
  FindingLine first;             ///< of the earliest iteration, lowest rank's line
  std::set<std::int64_t> ranks;  ///< concerned at that iteration
  std::int64_t last_iteration = 0;
  std::size_t order = 0;  ///< in which they were first read
};

/// Layer and tensor, in the order of the model where the records say it.
struct Place {
  std::string layer;
  std::string tensor;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct TensorSeries {
  std::size_t order = 0;  ///< of first appearance in the records: the model's order
  std::string recipe;
  std::uint64_t lines = 0;                      ///< of training phases, all ranks
  std::map<std::string, std::int64_t> formats;  ///< operand format -> first iteration with it
  std::map<std::string, std::string> what_ifs;  ///< statistic -> format of the what-if
  std::map<std::string, Series> stats;          ///< training phases only, without a first step's "no_history"
  std::optional<std::int64_t> nonfinite;        ///< first iteration with a NaN or Inf counted, on any rank
  std::optional<std::size_t> group;  ///< of the ranks that a split tensor's outliers are counted over
  [[nodiscard]] const Series* find(const std::string& stat) const;
};

class Evidence final : public RecordVisitor {
 public:
  void record(const RecordLine& line) override;
  void scalars(std::int64_t iteration, const std::map<std::string, double>& values) override;
  void finding(const FindingLine& line) override;

  [[nodiscard]] const std::map<Place, TensorSeries>& tensors() const noexcept { return tensors_; }
  /// The places in the order of the model.
  [[nodiscard]] std::vector<const std::pair<const Place, TensorSeries>*> in_order() const;
  [[nodiscard]] const std::map<std::tuple<std::string, std::string, std::string>, Found>& findings()
      const noexcept {
    return findings_;  ///< by check, layer, tensor
  }
  [[nodiscard]] const std::map<std::string, Series>& scalars() const noexcept { return scalars_; }
  [[nodiscard]] const Series* scalar(const std::string& name) const;
  /// World ranks.
  [[nodiscard]] const std::vector<std::int64_t>& group(std::size_t number) const {
    return groups_.at(number);
  }
  /// Comparisons that a check ("I1") made, over all steps.
  [[nodiscard]] double comparisons(const std::string& check) const;
  /// Whether any record has the statistic.
  [[nodiscard]] bool measured(const std::string& stat) const;
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }

 private:
  /// The number of the line's group; none: there is no room for it.
  std::optional<std::size_t> group_of(const RecordLine& line);

  static constexpr std::size_t kMostTensors = 50'000;
  static constexpr std::size_t kMostFindings = 20'000;
  static constexpr std::size_t kMostScalars = 1'000;

  std::map<Place, TensorSeries> tensors_;
  std::map<std::tuple<std::string, std::string, std::string>, Found> findings_;
  std::map<std::string, Series> scalars_;
  std::map<std::string, double> comparisons_;
  std::vector<std::vector<std::int64_t>> groups_;  ///< each once
  std::set<std::string, std::less<>> measured_;
  std::uint64_t records_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace amaxscope::report
