// I4: recomputing a layer gives what its forward gave, in bytes and in precision.
#include <fmt/format.h>

#include <map>

#include "features/invariants/check.hpp"
#include "features/invariants/sampling.hpp"
#include "kernels/content_hash.hpp"

namespace amaxscope {

namespace {

struct Seen {
  std::int64_t iteration = -1;
  std::uint64_t fingerprint = 0;
  DType format = DType::kF32;
};

class RecomputeCheck final : public InvariantCheck {
 public:
  RecomputeCheck() : InvariantCheck("I4") {}

  void inspect(const InspectContext& context) override {
    const Phase phase = context.moment.phase;
    if (phase != Phase::kForward && phase != Phase::kRecompute) return;
    if (!context.tensor.kind || context.tensor.training_phase != Phase::kForward) return;
    const std::optional<Seen> now = look(context);
    if (!now) return;
    Seen& forward = forwards_[{&context.tensor, context.moment.microbatch}];
    if (phase == Phase::kForward) {
      forward = *now;
      return;
    }
    // Without its forward (a schedule that began in between) there is nothing to compare with.
    if (forward.iteration != context.iteration) return;
    count();
    if (forward.format != now->format) {
      fail(context,
           fmt::format("recomputed in another precision: the forward had {}, the recompute has {}",
                       to_string(forward.format), to_string(now->format)),
           {{"forward", std::string(to_string(forward.format))},
            {"recompute", std::string(to_string(now->format))}});
    } else if (forward.fingerprint != now->fingerprint) {
      fail(context,
           fmt::format("the recompute differs from the forward in its bytes (micro-batch {}, {})",
                       context.moment.microbatch, to_string(now->format)),
           {{"forward", fmt::format("{:016x}", forward.fingerprint)},
            {"recompute", fmt::format("{:016x}", now->fingerprint)}});
    }
  }

 private:
  /// The operand the forward GEMM reads, or the result.
  static std::optional<Seen> look(const InspectContext& context) {
    if (is_result(*context.tensor.kind)) {
      return Seen{context.iteration, content_hash(context.x), context.x.dtype()};
    }
    if (context.rowwise == nullptr) return std::nullopt;
    const auto fingerprint = operand_fingerprint(*context.rowwise, Direction::kRowwise);
    if (!fingerprint) return std::nullopt;
    return Seen{context.iteration, *fingerprint, context.rowwise->format(Direction::kRowwise)};
  }

  std::map<std::pair<const InspectedTensor*, int>, Seen> forwards_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_recompute_check() { return std::make_unique<RecomputeCheck>(); }

}  // namespace amaxscope
