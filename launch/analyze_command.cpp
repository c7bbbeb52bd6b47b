// `amaxscope analyze`: what is in tensor files, and what quantization would do to it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "launch/analyze_pairs.hpp"
#include "launch/analyze_rows.hpp"
#include "launch/analyze_statistics.hpp"
#include "launch/commands.hpp"
#include "launch/ticker.hpp"
#include "launch/words.hpp"
#include "runtime/config/layer_selector.hpp"
#include "runtime/storage/tensor_file.hpp"

namespace amaxscope::launch {

namespace {

struct AnalyzeOptions {
  std::vector<std::string> files;
  std::string tensor;
  std::vector<std::string> recipes;
  std::vector<std::string> stats;
  std::string as = "activation";
  std::string against;
  std::string stored_dtype;
  std::vector<std::string> replicas;
  bool json = false;
};

/// The files and the tensors of them that were asked for.
class Selection {
 public:
  explicit Selection(const AnalyzeOptions& options) {
    if (!options.tensor.empty()) {
      try {
        pattern_.emplace(options.tensor);
      } catch (const Error& error) {
        throw Error(ErrorCode::kUsage, fmt::format("--tensor {}: {}", options.tensor, error.what()));
      }
    }
    // All at once, so that a wrong file at the end costs no analysis of the first.
    for (const std::string& path : options.files) files_.push_back(open_tensor_file(path));
    for (const auto& file : files_)
      count_ +=
          std::ranges::count_if(file->tensors(), [&](const StoredTensor& tensor) { return chosen(tensor); });
    AMAXSCOPE_CHECK(count_ > 0, ErrorCode::kInput, "{}: no tensor{}", fmt::join(options.files, ", "),
                    pattern_ ? " of a name in which --tensor is found" : " is in there");
  }

  [[nodiscard]] const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  [[nodiscard]] bool chosen(const StoredTensor& tensor) const {
    return !pattern_ || pattern_->found_in(tensor.name);
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  std::optional<Pattern> pattern_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::int64_t count_ = 0;
};

std::string about(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", tensor.type, fmt::join(tensor.extents, ", "));
}

/// Why a tensor has no statistics of floating-point numbers; empty when it has.
std::string why_no_numbers(const StoredTensor& tensor) {
  if (const std::string why = tensor.unreadable(); !why.empty()) return why;
  if (is_fp8(*tensor.dtype)) return fmt::format("it holds codes ({}), whose scale is elsewhere", tensor.type);
  if (!is_high_precision(*tensor.dtype)) return fmt::format("it holds integers ({})", tensor.type);
  return {};
}

/// In a type that the features take.
Tensor read_numbers(const TensorFile& file, const StoredTensor& tensor) {
  Tensor x = file.read(tensor);
  if (x.dtype() != DType::kF64) return x;
  Tensor narrowed(DType::kF32, x.shape());
  convert(x.view(), narrowed);
  return narrowed;
}

void say_what_is_missing(const std::vector<RecipeKind>& recipes, const std::vector<AnalyzeRow>& rows,
                         std::set<RecipeKind>& said) {
  for (const RecipeKind recipe : recipes) {
    const bool has_rows =
        std::ranges::any_of(rows, [&](const AnalyzeRow& row) { return row.recipe == to_string(recipe); });
    if (has_rows || rows.empty() || !said.insert(recipe).second) continue;
    fmt::print(stderr, "recipe {}: none of the statistics asked for\n", to_string(recipe));
  }
}

ExitStatus analyze_files(const AnalyzeOptions& options) {
  std::vector<RecipeKind> recipes;
  for (const std::string& word : split_words(options.recipes)) {
    const RecipeKind recipe = recipe_word("--recipe", word);
    if (recipe != RecipeKind::kNone && std::ranges::find(recipes, recipe) == recipes.end())
      recipes.push_back(recipe);
  }
  if (options.recipes.empty()) {
    recipes = {RecipeKind::kDelayed, RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock,
               RecipeKind::kNvfp4};
  }
  const TensorAnalysis analysis(recipes, split_words(options.stats), parse_tensor(options.as).value());
  const Selection selection(options);
  AnalyzeOutput output(options.json);
  Ticker ticker(stderr, "tensors", selection.count());
  std::set<RecipeKind> said;
  bool rounded = false;
  for (const auto& file : selection.files()) {
    for (const StoredTensor& tensor : file->tensors()) {
      if (!selection.chosen(tensor)) continue;
      ticker.advance();
      if (const std::string why = why_no_numbers(tensor); !why.empty()) {
        output.skip({file->path().string(), tensor.name, why});
        continue;
      }
      if (tensor.dtype == DType::kF64 && !std::exchange(rounded, true)) {
        fmt::print(stderr, "f64 tensors are rounded to f32 first\n");
      }
      const std::vector<AnalyzeRow> rows =
          analysis.rows(file->path().string(), tensor.name, read_numbers(*file, tensor));
      say_what_is_missing(recipes, rows, said);
      output.tensor(file->path().string(), tensor.name, about(tensor), rows);
    }
  }
  output.finish();
  return kDone;
}

/// Calls compare(file, tensor, other file, its tensor) for each selected tensor that both have.
template <class Compare>
void for_pairs(const Selection& selection, const TensorFile& other, AnalyzeOutput& output,
               const Compare& compare) {
  std::int64_t compared = 0;
  for (const auto& file : selection.files()) {
    for (const StoredTensor& tensor : file->tensors()) {
      if (!selection.chosen(tensor)) continue;
      const StoredTensor* partner = other.find(tensor.name);
      std::string why;
      if (partner == nullptr) {
        why = fmt::format("{} has none of that name", other.path().string());
      } else if (partner->extents != tensor.extents) {
        why = fmt::format("it is [{}] here and [{}] in {}", fmt::join(tensor.extents, ", "),
                          fmt::join(partner->extents, ", "), other.path().string());
      } else if (!tensor.unreadable().empty() || !partner->unreadable().empty()) {
        why = tensor.unreadable().empty() ? partner->unreadable() : tensor.unreadable();
      }
      if (why.empty() && compare(*file, tensor, *partner, why)) ++compared;
      if (!why.empty()) output.skip({file->path().string(), tensor.name, why});
    }
  }
  AMAXSCOPE_CHECK(compared > 0, ErrorCode::kInput,
                  "{}: shares no tensor with the other files that could be compared", other.path().string());
}

ExitStatus analyze_against(const AnalyzeOptions& options) {
  const Selection selection(options);
  const std::unique_ptr<TensorFile> before = open_tensor_file(options.against);
  AnalyzeOutput output(options.json);
  for_pairs(
      selection, *before, output,
      [&](const TensorFile& file, const StoredTensor& tensor, const StoredTensor& other, std::string& why) {
        why = why_no_numbers(tensor).empty() ? why_no_numbers(other) : why_no_numbers(tensor);
        if (!why.empty()) return false;
        DType stored = *tensor.dtype == DType::kF64 ? DType::kF32 : *tensor.dtype;
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
          if (to_string(dtype) == options.stored_dtype) stored = dtype;
        }
        const UpdateHealth health = update_health(file, tensor, *before, other, stored);
        const std::string path = file.path().string();
        output.tensor(path, tensor.name, about(tensor) + fmt::format(", stored as {}", to_string(stored)),
                      rows_of(health, path, tensor.name));
        return true;
      });
  output.finish();
  return kDone;
}

ExitStatus analyze_replicas(const AnalyzeOptions& options) {
  AMAXSCOPE_CHECK(options.files.size() == 1, ErrorCode::kUsage,
                  "--replicas: compares one file with others; {} files were given", options.files.size());
  const Selection selection(options);
  AnalyzeOutput output(options.json);
  bool equal = true;
  for (const std::string& path : options.replicas) {
    const std::unique_ptr<TensorFile> replica = open_tensor_file(path);
    for_pairs(
        selection, *replica, output,
        [&](const TensorFile& file, const StoredTensor& tensor, const StoredTensor& other, std::string& why) {
          if (tensor.dtype != other.dtype)
            why = fmt::format("it is {} here and {} in {}", tensor.type, other.type, path);
          if (!why.empty()) return false;
          const ReplicaDifference difference = replica_difference(file, tensor, *replica, other);
          equal = equal && difference.differing == 0;
          output.tensor(path, tensor.name, about(tensor), rows_of(difference, path, tensor.name));
          return true;
        });
  }
  output.finish();
  return equal ? kDone : kAnswerIsNo;
}

ExitStatus analyze(const AnalyzeOptions& options) {
  AMAXSCOPE_CHECK(options.against.empty() || options.replicas.empty(), ErrorCode::kUsage,
                  "--against and --replicas ask different questions; give one of them");
  AMAXSCOPE_CHECK(options.stored_dtype.empty() || !options.against.empty(), ErrorCode::kUsage,
                  "--stored-dtype: only together with --against");
  if (!options.against.empty()) return analyze_against(options);
  if (!options.replicas.empty()) return analyze_replicas(options);
  return analyze_files(options);
}

}  // namespace

Command add_analyze(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "analyze", "statistics and quantization error of the tensors in files, under each recipe");
  auto options = std::make_shared<AnalyzeOptions>();
  subcommand
      ->add_option("FILE", options->files, ".safetensors, .npy, or a checkpoint's .safetensors.index.json")
      ->required();
  subcommand
      ->add_option("--tensor", options->tensor,
                   "only tensors in whose name this is found (Python's re.search)")
      ->type_name("REGEX");
  subcommand
      ->add_option("--recipe", options->recipes,
                   "delayed,current,mxfp8,block,nvfp4 (default: all); none: no errors")
      ->type_name("LIST")
      ->expected(1)
      ->take_all();
  subcommand
      ->add_option(
          "--stats", options->stats,
          "names from LogTensorStats and LogFp8TensorStats (`amaxscope explain`), with _columnwise behind "
          "for the other direction")
      ->type_name("LIST")
      ->expected(1)
      ->take_all();
  subcommand
      ->add_option("--as", options->as,
                   "activation (default), weight or gradient: formats and blocks are what recipes give those")
      ->check(CLI::IsMember({"activation", "weight", "gradient"}))
      ->type_name("OPERAND");
  subcommand
      ->add_option("--against", options->against,
                   "an earlier checkpoint: what the updates since then are, instead of statistics")
      ->type_name("FILE");
  subcommand
      ->add_option(
          "--stored-dtype", options->stored_dtype,
          "with --against: f32, f16 or bf16, the type in which updates get lost (default: the file's)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->type_name("D");
  subcommand
      ->add_option(
          "--replicas", options->replicas,
          "other ranks' shards: tensors of the same name and shape must be equal bit for bit; exit 1 when "
          "they are not (leave out what is split with --tensor)")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  subcommand->add_flag("--json", options->json, "one JSON object: rows of file, tensor, recipe, stat, value");
  subcommand->footer(
      "One tensor is in memory at a time (with --against and --replicas a piece of it). Under delayed the "
      "history\n"
      "holds the tensor's own amax. With --against: update_ratio is rms(update) / rms(weight); lost_updates% "
      "the\n"
      "share of the changes that the stored dtype rounds back; zero_rows are dead; unchanged_rows got no "
      "update.");
  return {.app = subcommand, .run_alone = [options] { return analyze(*options); }};
}

}  // namespace amaxscope::launch
