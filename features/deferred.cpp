#include "features/deferred.hpp"

#include <fmt/format.h>

#include "kernels/device_kernels.hpp"

namespace amaxscope {

DeviceResults::Request deferred(const InspectContext& context, StatAccumulator& into, const Schedule& due) {
  DeviceResults::Request request;
  request.key = {.tensor = &context.tensor, .eval = context.moment.phase == Phase::kEval};
  request.what = fmt::format("{} of {}", context.tensor.name, context.tensor.layer);
  request.once = context.tensor.kind == TensorKind::kWeight;
  request.into = &into;
  request.due = &due;
  return request;
}

void defer_moments(const InspectContext& context, MomentsAccumulator& into, const Schedule& due) {
  const MomentOrder order = into.order();
  DeviceResults::Request request = deferred(context, into, due);
  request.key.kind = static_cast<int>(order);
  request.bytes = sizeof(Accumulated<TensorMoments>);
  request.launch = [&x = context.x, order](const ResultSlot& slot) {
    device_kernels("tensor_stats", x)->add_tensor_stats(x, order, slot);
  };
  request.take = [&into](const std::byte* accumulated, std::int64_t) {
    into.feed(result_at<TensorMoments>(accumulated));
  };
  context.device_results->add(context.x, std::move(request));
}

}  // namespace amaxscope
