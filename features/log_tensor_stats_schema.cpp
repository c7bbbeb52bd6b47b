// What LogTensorStats may be asked for, in either namespace.
#include "features/log_tensor_stats.hpp"

#include "features/inspecting.hpp"

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

KeySchema positive(std::string name, std::string fallback, std::string doc) {
  return {.name = std::move(name),
          .type = KeyType::kInteger,
          .default_text = std::move(fallback),
          .doc = std::move(doc),
          .minimum = 1};
}

std::vector<StatSchema> magnitude_statistics() {
  return {
      {.name = "histogram",
       .doc = "Numbers of elements by power of two (histogram_2^K), zeros, NaN and Inf; the powers of two "
              "are in the "
              "JSON records only.",
       .parameters = {positive("bins", "32",
                               "How many powers of two to report, from the highest that occurs.")},
       .addition = true},
      {.name = "outliers",
       .doc =
           "Number and percentage of elements whose magnitude is above threshold times the rms of the whole "
           "tensor.",
       .parameters = {positive("threshold", "10", "In units of the rms.")},
       .addition = true},
      {.name = "outlier_channels",
       .doc =
           "The columns with most energy: index in the whole tensor, share of its energy, in how many of the "
           "last 16 due steps the column was among the top, which tensor-parallel rank holds it, and since "
           "when its share has been rising.",
       .parameters = {positive("top", "4", "How many columns.")},
       .addition = true},
      {.name = "outlier_rows",
       .doc = "The same of rows: of a weight the output channels, of an activation the tokens.",
       .parameters = {positive("top", "4", "How many rows.")},
       .addition = true},
  };
}

std::vector<StatSchema> update_statistics() {
  return {
      {.name = "update_ratio",
       .doc = "Of updates (observe:): rms of the update over rms of the weight.",
       .addition = true},
      {.name = "lost_updates%",
       .doc =
           "Of updates (observe:): percentage of the updates that are not zero and that adding to the stored "
           "weight leaves without effect.",
       .addition = true},
      {.name = "adam_ratio",
       .doc =
           "Of updates (observe:): rms of g / sqrt(v), the gradient over the root of Adam's second moment.",
       .addition = true},
  };
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
  for (StatSchema& stat : magnitude_statistics()) all.push_back(std::move(stat));
  for (StatSchema& stat : update_statistics()) all.push_back(std::move(stat));
  return all;
}

FeatureEntry entry(FeatureSchema schema, bool base_namespace) {
  schema.name = "LogTensorStats";
  schema.takes_tensors = true;
  schema.keys = {stats_key()};
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
