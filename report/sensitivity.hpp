// Which part of a quantized step does the damage: the step is run again from the same weights on the same
// batch with one thing in high precision, and with that thing alone quantized. No seed noise, and no second
// training.
//
// Any program that can run one step under a given debug config can ask: StepRunner is the whole of what is
// needed. `amaxscope sense` is that for the built-in trainer. Used by one thread of each rank; collective
// where the runner and the sum are.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope::report {

/// A GEMM layer that a recipe quantizes. The same list on all ranks, those of other pipeline stages included.
struct SensedLayer {
  std::string name;
  RecipeKind recipe = RecipeKind::kNone;
};

/// What a step gave on this rank. Views are looked at before the next step is run.
struct StepResult {
  /// f32 or f64, host, contiguous: of one parameter, the same parts in the same order in every step.
  struct Part {
    TensorView values;
    std::size_t parameter = 0;  ///< the same number for all shards of a parameter, others for others
    double share = 1.0;         ///< 1 / how many ranks hold these same numbers
  };
  std::size_t parameters = 0;  ///< of the whole model: those of other pipeline stages included
  double loss = 0;             ///< the same on all ranks
  std::vector<Part> gradient;
  std::vector<Part> update;  ///< what the optimizer added to the weights
};

/// Runs the step from the same weights on the same batch under this debug config ("" for none).
using StepRunner = std::function<StepResult(const std::string& yaml)>;
/// Adds up values over all ranks, in place; empty for one rank.
using SumOverRanks = std::function<void(std::span<double>)>;

/// One thing that is quantized, and the two configs that tell what it does.
struct Trial {
  std::string kind;               ///< "gemm", "tensor", "layer", "gemm of a layer"
  std::string what;               ///< "fprop", "activation", a layer's name, "dgrad of LAYER"
  std::string in_high_precision;  ///< YAML: everything as it is, this in high precision
  std::string alone_quantized;    ///< YAML: everything in high precision but this
};

/// GEMM classes, operand kinds and layers; each_gemm: every GEMM of every layer, too. Operand kinds go
/// through FakeQuant in GEMMs of high precision, under delayed scaling with current scales; they are left out
/// where layers have different recipes. Layers without a recipe are left out. Throws Error(kUsage) when none
/// is left.
std::vector<Trial> sense_trials(std::span<const SensedLayer> layers, bool each_gemm);
/// The config under which nothing is quantized.
std::string everything_in_high_precision();

/// Shares are of the squared distance |x - h|^2, h the step in high precision, to that of the step as
/// configured; parts that do not know of each other add up to about 1. A step that is not finite is
/// infinitely far.
struct Sensed {
  Trial trial;
  double loss_change = 0;        ///< in high precision, against the loss as configured
  double loss_change_alone = 0;  ///< alone quantized, against the loss in high precision
  double gradient_goes = 0;      ///< share of the error that goes away when this is in high precision
  double gradient_alone = 0;     ///< share that is there when this alone is quantized
  double update_goes = 0;
  double update_alone = 0;
};

struct Sensitivity {
  double loss = 0;  ///< as configured
  double loss_high_precision = 0;
  double gradient_error = 0;  ///< square root of the mean of |g - h|^2 / |h|^2 over parameters
  double update_error = 0;
  std::vector<Sensed> ranked;  ///< by kind, and within a kind by gradient_goes + gradient_alone
};

/// progress: told of every step that is done, and of how many there are.
Sensitivity sense(std::span<const Trial> trials, const StepRunner& run, const SumOverRanks& sum,
                  const std::function<void(std::size_t done, std::size_t all)>& progress = {});

/// A table of each kind, what it says in a sentence, and the YAML that keeps the worst layer in high
/// precision.
std::string as_text(const Sensitivity& sensitivity, std::size_t rows_of_a_kind = 10);
/// One JSON object with a "version", indented by two.
std::string as_json(const Sensitivity& sensitivity, int indent = 2);

}  // namespace amaxscope::report
