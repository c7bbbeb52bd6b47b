// What LogTensorStats may be asked for, in either namespace.
#include "features/log_tensor_stats.hpp"

namespace amaxscope {

namespace {

std::vector<StatSchema> base_statistics() {
  return {{.name = "min", .doc = "Smallest element; NaN when an element is NaN."},
          {.name = "max", .doc = "Largest element; NaN when an element is NaN."},
          {.name = "mean", .doc = "Mean of all elements."},
          {.name = "std", .doc = "Sample standard deviation (n - 1); none for a single element."},
          {.name = "l1_norm", .doc = "Sum of magnitudes."},
          {.name = "l2_norm", .doc = "Square root of the sum of squares."}};
}

std::vector<StatSchema> gemm_statistics() {
  std::vector<StatSchema> all = base_statistics();
  all.push_back({.name = "cur_amax", .doc = "Largest magnitude; NaN when an element is NaN."});
  all.push_back(
      {.name = "dynamic_range",
       .doc = "log2 of the largest over the smallest non-zero magnitude; 0 when all elements are zero."});
  all.push_back(
      {.name = "max_blockwise_dynamic_range",
       .doc = "The largest dynamic_range of a block; of activations and weights over both orientations.",
       .parameters = {{.name = "block_size",
                       .type = KeyType::kInteger,
                       .default_text = "32",
                       .doc = "Elements of a block along each of its dimensions.",
                       .minimum = 1},
                      {.name = "dims",
                       .type = KeyType::kInteger,
                       .default_text = "1",
                       .doc = "1: runs of a row, 2: square tiles.",
                       .allowed = {"1", "2"}}}});
  all.push_back({.name = "numel", .doc = "Number of elements.", .addition = true});
  all.push_back({.name = "nonzero", .doc = "Number of elements that are not zero.", .addition = true});
  all.push_back({.name = "nan", .doc = "Number of NaN elements.", .addition = true});
  all.push_back({.name = "inf", .doc = "Number of infinite elements.", .addition = true});
  all.push_back({.name = "rms", .doc = "Square root of the mean square.", .addition = true});
  all.push_back(
      {.name = "min_finite", .doc = "Smallest element that is neither NaN nor infinite.", .addition = true});
  all.push_back(
      {.name = "max_finite", .doc = "Largest element that is neither NaN nor infinite.", .addition = true});
  all.push_back({.name = "amax_finite",
                 .doc = "Largest magnitude that is neither NaN nor infinite.",
                 .addition = true});
  all.push_back({.name = "skewness",
                 .doc = "Third standardised moment of the population; none when all elements are equal.",
                 .addition = true});
  all.push_back({.name = "kurtosis",
                 .doc = "Fourth standardised moment of the population less 3, so that of a normal "
                        "distribution is 0; none when all elements are equal.",
                 .addition = true});
  all.push_back({.name = "peak_rms",
                 .doc = "Largest magnitude over rms: how far the peak stands out; 0 when all are zero.",
                 .addition = true});
  return all;
}

FeatureEntry entry(FeatureSchema schema, bool base_namespace) {
  schema.name = "LogTensorStats";
  schema.takes_tensors = true;
  schema.keys = {{.name = "stats",
                  .type = KeyType::kStatList,
                  .required = true,
                  .default_text = "",
                  .doc = "The statistics to log."}};
  return {.schema = std::move(schema), .base_namespace = base_namespace, .make = [](FeatureConfig config) {
            return std::make_unique<LogTensorStats>(std::move(config));
          }};
}

}  // namespace

FeatureEntry log_tensor_stats_entry() {
  FeatureSchema schema;
  schema.doc = "Logs statistics of tensors in high precision, before they are quantized.";
  schema.statistics = gemm_statistics();
  return entry(std::move(schema), false);
}

FeatureEntry base_log_tensor_stats_entry() {
  FeatureSchema schema;
  schema.doc = "Logs statistics of any tensor that a program hands in under a name of its own.";
  schema.free_tensor_names = true;
  schema.statistics = base_statistics();
  return entry(std::move(schema), true);
}

}  // namespace amaxscope
