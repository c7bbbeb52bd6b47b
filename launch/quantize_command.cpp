// `amaxscope quantize`: the codes and scales of one tensor, as a file that a user can check by hand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <filesystem>
#include <vector>

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "launch/commands.hpp"
#include "launch/words.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "runtime/storage/operand_parts.hpp"
#include "runtime/storage/tensor_file.hpp"

namespace amaxscope::launch {

namespace {

struct QuantizeOptions {
  std::string input;
  std::string output;
  std::string recipe = "current";
  std::string format;  ///< empty: e4m3, or e2m1 of nvfp4
  std::string usage = "both";
  std::string layout = "1d";
  bool random_hadamard = false;
};

/// The tensor of the file, in a type that quantizers take.
Tensor read_input(const std::string& path) {
  const std::unique_ptr<TensorFile> file = open_tensor_file(path);
  AMAXSCOPE_CHECK(file->tensors().size() == 1, ErrorCode::kInput,
                  "{}: holds {} tensors; quantize takes a file with one", path, file->tensors().size());
  const StoredTensor& stored = file->tensors().front();
  AMAXSCOPE_CHECK(stored.dtype && is_high_precision(*stored.dtype), ErrorCode::kInput,
                  "{}: is {}; f64, f32, f16 and bf16 can be quantized", path, stored.type);
  Tensor x = file->read(stored);
  if (x.dtype() != DType::kF64) return x;
  fmt::print(stderr, "{}: f64 is rounded to f32 first, as quantizers take at most that\n", path);
  Tensor narrowed(DType::kF32, x.shape());
  convert(x.view(), narrowed);
  return narrowed;
}

QuantizerRequest request_for(const QuantizeOptions& options, RecipeKind recipe) {
  const bool square = options.layout == "2d";
  AMAXSCOPE_CHECK(!square || (recipe != RecipeKind::kDelayed && recipe != RecipeKind::kCurrent),
                  ErrorCode::kUsage, "--layout 2d: recipe {} has one scale for the tensor, and no blocks",
                  options.recipe);
  AMAXSCOPE_CHECK(!options.random_hadamard || (recipe == RecipeKind::kNvfp4 && !square), ErrorCode::kUsage,
                  "--random-hadamard: for nvfp4 with --layout 1d only");
  QuantizerRequest request;
  request.recipe = recipe;
  // Two-dimensional blocks are what recipes give weights, one-dimensional ones what they give activations.
  request.tensor = square ? TensorKind::kWeight : TensorKind::kActivation;
  request.name = std::filesystem::path(options.input).stem().string();
  request.options.mxfp8.two_dimensional_weights = true;
  request.options.nvfp4.two_dimensional_weights = true;
  request.options.nvfp4.random_hadamard = options.random_hadamard;
  if (options.format.empty()) {
    request.format = recipe == RecipeKind::kNvfp4 ? DType::kE2M1 : DType::kE4M3;
  } else {
    request.format = options.format == "e4m3" ? DType::kE4M3 : DType::kE5M2;
    AMAXSCOPE_CHECK(recipe != RecipeKind::kNvfp4, ErrorCode::kUsage,
                    "--format {}: the codes of nvfp4 are e2m1", options.format);
  }
  return request;
}

std::string summary_of(const QuantizeOptions& options, const Tensor& x, const OperandParts& parts) {
  std::string text = fmt::format("{}: {} {}, recipe {}\n", options.input, to_string(x.dtype()),
                                 to_string(x.shape()), options.recipe);
  for (const NamedTensor& part : parts.tensors()) {
    text += fmt::format("  {:<21} {:<5} {}\n", part.name, to_string(part.view.dtype()),
                        to_string(part.view.shape()));
  }
  return text + fmt::format("written to {}\n", options.output);
}

ExitStatus quantize(const QuantizeOptions& options) {
  const RecipeKind recipe = recipe_word("--recipe", options.recipe);
  AMAXSCOPE_CHECK(recipe != RecipeKind::kNone, ErrorCode::kUsage, "--recipe none: quantizes nothing");
  QuantizerRequest request = request_for(options, recipe);
  const Usage usage{.rowwise = options.usage != "columnwise", .columnwise = options.usage != "rowwise"};
  const Tensor x = read_input(options.input);

  const std::uint32_t amax = x.numel() == 0 ? 0U : amax_bits(x);
  DelayedScalingState delayed({.history_length = 1}, nullptr);
  request.delayed = &delayed;
  const std::shared_ptr<Quantizer> quantizer = make_quantizer(request);
  if (recipe == RecipeKind::kDelayed) {
    delayed.observe(0, amax);
    delayed.update();
  }
  std::shared_ptr<QuantizedTensor> quantized;
  try {
    quantized = quantizer->quantize(x, usage, {});
  } catch (const Error& error) {
    // A shape that the format does not have is the file's fault here.
    if (error.code() != ErrorCode::kTensor) throw;
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", options.input, error.what()));
  }
  OperandParts parts;
  if (usage.rowwise) parts.add_direction(*quantized, Direction::kRowwise);
  if (usage.columnwise) parts.add_direction(*quantized, Direction::kColumnwise);
  std::map<std::string, std::string> metadata = parts.formats();
  metadata["source"] = std::filesystem::path(options.input).filename().string();
  metadata["recipe"] = to_string(recipe);
  metadata["format"] = to_string(*request.format);
  metadata["layout"] = options.layout;
  metadata["shape"] = fmt::format("{}", fmt::join(x.shape().extents(), ","));
  metadata["amax"] = fmt::format("{:.9g}", std::bit_cast<float>(amax));
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(quantized.get())) {
    metadata["scale"] = fmt::format("{:.9g}", codes->scale());
  }
  write_safetensors(options.output, parts.tensors(), metadata);
  fmt::print("{}", summary_of(options, x, parts));
  return kDone;
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* subcommand =
      app.add_subcommand("quantize", "writes the codes and scales of a tensor under a recipe to a file");
  auto options = std::make_shared<QuantizeOptions>();
  subcommand->add_option("IN", options->input, "a .npy file (or a .safetensors file with one tensor)")
      ->required();
  subcommand->add_option("-o,--output", options->output, "the .safetensors file to write")
      ->type_name("OUT")
      ->required();
  subcommand->add_option("--recipe", options->recipe, "delayed, current (default), mxfp8, block, nvfp4")
      ->type_name("R");
  subcommand->add_option("--format", options->format, "e4m3 (default) or e5m2")
      ->check(CLI::IsMember({"e4m3", "e5m2"}))
      ->type_name("F");
  subcommand->add_option("--usage", options->usage, "rowwise, columnwise or both (default)")
      ->check(CLI::IsMember({"rowwise", "columnwise", "both"}))
      ->type_name("U");
  subcommand
      ->add_option("--layout", options->layout, "1d (default): blocks along a row or column; 2d: square ones")
      ->check(CLI::IsMember({"1d", "2d"}))
      ->type_name("L");
  subcommand->add_flag("--random-hadamard", options->random_hadamard,
                       "nvfp4: rotate the columnwise codes, as the recipe does for activations");
  subcommand->footer(
      "Parts of the file: rowwise, rowwise_scale_inv, columnwise, columnwise_scale_inv, for nvfp4 "
      "rowwise_amax and\n"
      "columnwise_amax; what they are is in its metadata. E8M0 scales and packed FP4 codes are U8, padding "
      "of scales\n"
      "is zero. Under delayed the scale is that of a history whose one entry is this tensor's amax.");
  return {.app = subcommand, .run_alone = [options] { return quantize(*options); }};
}

}  // namespace amaxscope::launch
