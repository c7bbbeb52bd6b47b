#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

ReduceAmaxes reduce_amaxes_over(Communicator* group, std::string name) {
  if (group == nullptr || group->size() == 1) return {};
  return [group, name = std::move(name)](std::span<std::uint32_t> amaxes) {
    group->all_reduce(
        MutableTensorView(amaxes.data(), DType::kU32, Shape{static_cast<std::int64_t>(amaxes.size())}),
        ReduceOp::kMax, {.traffic = Traffic::kRecipe, .what = "scale amax", .layer = name});
  };
}

}  // namespace amaxscope
