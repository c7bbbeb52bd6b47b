#include "runtime/names.hpp"

namespace amaxscope {

namespace {

template <class Enum, std::size_t N>
std::optional<Enum> parse(std::string_view text, const std::array<Enum, N>& all) noexcept {
  for (const Enum value : all) {
    if (to_string(value) == text) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Gemm gemm) noexcept {
  switch (gemm) {
    case Gemm::kFprop:
      return "fprop";
    case Gemm::kDgrad:
      return "dgrad";
    case Gemm::kWgrad:
      return "wgrad";
  }
  return "unknown";
}

std::string_view to_string(TensorKind tensor) noexcept {
  switch (tensor) {
    case TensorKind::kActivation:
      return "activation";
    case TensorKind::kWeight:
      return "weight";
    case TensorKind::kGradient:
      return "gradient";
    case TensorKind::kOutput:
      return "output";
    case TensorKind::kWgrad:
      return "wgrad";
    case TensorKind::kDgrad:
      return "dgrad";
  }
  return "unknown";
}

std::string_view to_string(Direction direction) noexcept {
  return direction == Direction::kRowwise ? "rowwise" : "columnwise";
}

std::string_view to_string(Phase phase) noexcept {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kRecompute:
      return "recompute";
    case Phase::kBackward:
      return "backward";
    case Phase::kEval:
      return "eval";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) noexcept {
  switch (layout) {
    case Layout::kReplicated:
      return "replicated";
    case Layout::kShard0:
      return "shard0";
    case Layout::kShard1:
      return "shard1";
    case Layout::kPartial:
      return "partial";
  }
  return "unknown";
}

std::optional<Gemm> parse_gemm(std::string_view text) noexcept { return parse(text, kAllGemms); }
std::optional<TensorKind> parse_tensor(std::string_view text) noexcept { return parse(text, kAllTensors); }

std::optional<Gemm> gemm_of(TensorKind tensor, Direction direction) noexcept {
  const bool rowwise = direction == Direction::kRowwise;
  switch (tensor) {
    case TensorKind::kActivation:
      return rowwise ? Gemm::kFprop : Gemm::kWgrad;
    case TensorKind::kWeight:
      return rowwise ? Gemm::kFprop : Gemm::kDgrad;
    case TensorKind::kGradient:
      return rowwise ? Gemm::kDgrad : Gemm::kWgrad;
    case TensorKind::kOutput:
      return rowwise ? std::optional(Gemm::kFprop) : std::nullopt;
    case TensorKind::kWgrad:
      return rowwise ? std::optional(Gemm::kWgrad) : std::nullopt;
    case TensorKind::kDgrad:
      return rowwise ? std::optional(Gemm::kDgrad) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Direction> direction_of(TensorKind tensor, Gemm gemm) noexcept {
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    if (gemm_of(tensor, direction) == gemm) return direction;
  }
  return std::nullopt;
}

std::array<TensorKind, 2> operands_of(Gemm gemm) noexcept {
  switch (gemm) {
    case Gemm::kFprop:
      return {TensorKind::kActivation, TensorKind::kWeight};
    case Gemm::kDgrad:
      return {TensorKind::kGradient, TensorKind::kWeight};
    case Gemm::kWgrad:
      break;
  }
  return {TensorKind::kGradient, TensorKind::kActivation};
}

}  // namespace amaxscope
