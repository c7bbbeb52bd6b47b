#include "runtime/feature/feature.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "runtime/feature/host_view.hpp"
#include "runtime/stats/device_results.hpp"

namespace amaxscope {

namespace {

/// The first iteration after a due one that is not.
std::optional<std::int64_t> end_of_due_run(const Schedule& schedule, std::int64_t iteration) {
  std::int64_t candidate = iteration + 1;
  if (schedule.freq() > 1) return candidate;
  // With freq 1 whole intervals are due, and the next may begin where one ends.
  for (const IterationInterval& interval : schedule.intervals()) {
    if (interval.start > candidate) break;
    if (!interval.end) return std::nullopt;
    candidate = std::max(candidate, *interval.end + 1);
  }
  return candidate;
}

}  // namespace

Decision Decision::of(const Schedule& schedule, std::int64_t iteration) {
  if (schedule.due(iteration)) return {true, end_of_due_run(schedule, iteration)};
  return {false, schedule.next_due(iteration + 1)};
}

std::optional<std::int64_t> earlier(std::optional<std::int64_t> a, std::optional<std::int64_t> b) noexcept {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

bool InspectContext::captured() const noexcept {
  return device_results != nullptr && device_results->capturing();
}

const InspectContext& InspectContext::on_host() const {
  if (is_on_host(*this)) return *this;
  AMAXSCOPE_CHECK(!captured(), ErrorCode::kUsage, "it is computed on the host");
  if (host_view == nullptr) host_view = std::make_shared<const HostView>(*this);
  return host_view->context();
}

const TensorMoments& InspectContext::moments(MomentOrder order) const {
  if (!cached_moments || order > cached_order) {
    cached_moments = tensor_stats(x, order);
    cached_order = order;
  }
  return *cached_moments;
}

const ContentParts& InspectContext::content() const {
  if (!cached_content) cached_content = content_parts(x);
  return *cached_content;
}

std::uint32_t InspectContext::amax() const {
  if (!cached_amax) cached_amax = x.numel() == 0 ? 0U : amax_bits(x);
  return *cached_amax;
}

std::string Feature::label() const {
  const std::string place = config_.position.line > 0 ? fmt::format(" (line {})", config_.position.line) : "";
  return fmt::format("{} of section {}{}", config_.name, config_.section, place);
}

std::shared_ptr<QuantizedTensor> Feature::modify_tensor(const ModifyContext& context) {
  throw Error(ErrorCode::kInternal,
              fmt::format("{} says that it modifies {} of layer {} but has no modify_tensor", label(),
                          to_string(context.tensor), context.layer.name));
}

}  // namespace amaxscope
