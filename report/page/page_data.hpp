// What the page of a run shows beside the verdict: every statistic of every tensor, over iterations and
// merged over ranks. Filled while the records are read; memory is bounded whatever the files hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/page/bucket_series.hpp"
#include "report/records.hpp"

namespace amaxscope::report {

/// How much a page may hold. The defaults make a file of some ten MB at the very most.
struct PageLimits {
  std::size_t stat_buckets = 600'000;       ///< of all statistics together
  std::size_t histogram_buckets = 200'000;  ///< of all bins of histograms together
  std::size_t rank_buckets = 60'000;        ///< of all values per rank together
  std::size_t buckets_a_series = 512;
  std::size_t buckets_a_scalar = 2'048;
  std::size_t names = 20'000;  ///< of layers, of tensors and of statistics, each
  std::size_t series = 150'000;
  std::size_t rank_series = 8'000;
  std::size_t scalars = 200;
  std::size_t ranks_a_series = 16;  ///< the others go into the merged series only
};

/// What an operand was in, from an iteration on.
struct OperandFormat {
  std::int64_t iteration = 0;
  std::string recipe;
  std::string format;  ///< empty: the records do not say
};

class PageData final : public RecordVisitor {
 public:
  struct Key {
    std::uint32_t layer;
    std::uint32_t tensor;
    std::uint32_t stat;
    friend bool operator==(const Key&, const Key&) = default;
  };
  /// One statistic of one tensor.
  struct Values {
    std::int64_t rank = 0;                        ///< the first rank of the group whose records came first
    BucketSeries own;                             ///< of that group
    BucketSeries merged;                          ///< of the groups that `others` has no room for
    std::map<std::int64_t, BucketSeries> others;  ///< by the first rank of their group
    /// Smallest and largest over all ranks.
    [[nodiscard]] BucketSeries all() const;
    /// Whether groups of ranks have other values of the same iterations.
    [[nodiscard]] bool differs() const;
  };
  struct HashKey {
    std::size_t operator()(const Key& key) const noexcept {
      std::uint64_t mixed = key.layer * 0x9E3779B97F4A7C15U;
      mixed = (mixed ^ key.tensor) * 0x9E3779B97F4A7C15U;
      mixed = (mixed ^ key.stat) * 0x9E3779B97F4A7C15U;
      return mixed ^ (mixed >> 29U);
    }
  };
  using Series = std::unordered_map<Key, Values, HashKey>;

  explicit PageData(PageLimits limits = {});

  void record(const RecordLine& line) override;
  void scalars(std::int64_t iteration, const std::map<std::string, double>& values) override;
  void finding(const FindingLine& /*line*/) override {}  // Evidence has them

  [[nodiscard]] const std::vector<std::string>& layers() const noexcept { return layers_.names; }
  [[nodiscard]] const std::vector<std::string>& tensors() const noexcept { return tensors_.names; }
  [[nodiscard]] const std::vector<std::string>& stats() const noexcept { return stats_.names; }
  [[nodiscard]] const Series& series() const noexcept { return series_; }
  [[nodiscard]] const std::map<std::string, BucketSeries>& scalars() const noexcept { return scalars_; }
  /// By layer and tensor; the changes in the order of the records, at most 16.
  [[nodiscard]] const std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<OperandFormat>>& formats()
      const noexcept {
    return formats_;
  }
  /// Values of series that did not fit.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  [[nodiscard]] std::size_t buckets() const noexcept;

 private:
  struct Names {
    std::vector<std::string> names;  ///< in the order in which they were first read
    std::unordered_map<std::string, std::uint32_t> numbers;
  };
  /// All series that share a number of buckets; when they have more, all become coarser.
  struct Pool {
    std::size_t most = 0;
    std::size_t used = 0;
    int shift = 0;
  };

  const std::uint32_t* number_of(Names& names, const std::string& name) const;
  void add(Pool& pool, BucketSeries& series, std::int64_t iteration, double value);
  void make_room(Pool& pool);
  [[nodiscard]] Pool& pool_of(std::uint32_t stat) { return is_histogram_[stat] ? histograms_ : numbers_; }
  void add_format(std::uint32_t layer, std::uint32_t tensor, const RecordLine& line);

  PageLimits limits_;
  Names layers_;
  Names tensors_;
  Names stats_;
  std::vector<bool> is_histogram_;  ///< by statistic
  Pool numbers_;
  Pool histograms_;
  Pool ranks_;
  std::size_t rank_series_ = 0;
  Series series_;
  std::map<std::string, BucketSeries> scalars_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<OperandFormat>> formats_;
  std::uint64_t left_out_ = 0;
};

/// The numbers of the layers, in the order of the model: the embedding, then by the number after "layers." as
/// the stages of a pipeline have them, then the rest; alike ones as they were first read.
std::vector<std::uint32_t> model_order(const std::vector<std::string>& layers);

}  // namespace amaxscope::report
