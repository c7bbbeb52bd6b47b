#include "tests/device/api_trace.hpp"

#include <cupti.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "core/error.hpp"
#include "tests/device/api_names.hpp"

namespace amaxscope::testing {

namespace {

void check_cupti(CUptiResult result, std::string_view operation) {
  const char* text = nullptr;
  if (result != CUPTI_SUCCESS) static_cast<void>(cuptiGetResultString(result, &text));
  AMAXSCOPE_CHECK(result == CUPTI_SUCCESS, ErrorCode::kInternal, "{}: {}", operation,
                  text == nullptr ? "an unknown error" : text);
}

}  // namespace

struct ApiTrace::State {
  std::thread::id thread = std::this_thread::get_id();
  std::vector<std::string> calls;
  CUpti_SubscriberHandle subscriber = nullptr;

  static void CUPTIAPI called(void* state, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* data) {
    auto& self = *static_cast<State*>(state);
    if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (call.callbackSite != CUPTI_API_ENTER || std::this_thread::get_id() != self.thread) return;
    self.calls.emplace_back(call.functionName);
  }
};

ApiTrace::ApiTrace() : state_(std::make_unique<State>()) {
  check_cupti(cuptiSubscribe(&state_->subscriber, &State::called, state_.get()), "cuptiSubscribe");
  for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_DRIVER_API})
    check_cupti(cuptiEnableDomain(1, state_->subscriber, domain), "cuptiEnableDomain");
}

ApiTrace::~ApiTrace() { static_cast<void>(cuptiUnsubscribe(state_->subscriber)); }

void ApiTrace::start() { state_->calls.clear(); }

const std::vector<std::string>& ApiTrace::calls() const { return state_->calls; }

int ApiTrace::waits() const {
  return static_cast<int>(
      std::ranges::count_if(state_->calls, [](const std::string& call) { return may_wait(call); }));
}

}  // namespace amaxscope::testing
