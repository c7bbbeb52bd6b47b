#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

ReduceAmaxes reduce_amaxes_over(Communicator* group, std::string name) {
  if (group == nullptr || group->size() == 1) return {};
  return [group, name = std::move(name)](const MutableTensorView& amaxes) {
    group->all_reduce(amaxes, ReduceOp::kMax,
                      {.traffic = Traffic::kRecipe, .what = "scale amax", .layer = name});
  };
}

}  // namespace amaxscope
