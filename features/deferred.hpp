// Statistics of tensors on a device, made by kernels that nobody waits for: step() feeds them. Free
// functions.
#pragma once

#include <cstring>

#include "runtime/feature/feature.hpp"
#include "runtime/stats/device_results.hpp"
#include "runtime/stats/moments_accumulator.hpp"

namespace amaxscope {

/// A request for what is inspected; key.owner, key.kind, bytes, launch, note and take are the caller's to
/// fill in.
DeviceResults::Request deferred(const InspectContext& context, StatAccumulator& into, const Schedule& due);

/// Feeds context.moments() in step(). due: the accumulator's, and lives as long. context.defers() must hold.
void defer_moments(const InspectContext& context, MomentsAccumulator& into, const Schedule& due);

/// What kernels have left, of DeviceResults::Request::take.
template <class Result>
Result result_at(const std::byte* accumulated) {
  Accumulated<Result> there;
  std::memcpy(&there, accumulated, sizeof there);
  return there.result;
}

}  // namespace amaxscope
