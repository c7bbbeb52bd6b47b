#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope {

namespace {

class CallbackSink final : public Sink {
 public:
  CallbackSink(std::function<void(const StatRecord&)> on_record,
               std::function<void(std::int64_t, const Scalars&)> on_scalars,
               std::function<void(const Finding&)> on_finding,
               std::function<void(std::int64_t, const Event&)> on_event)
      : on_record_(std::move(on_record)),
        on_scalars_(std::move(on_scalars)),
        on_finding_(std::move(on_finding)),
        on_event_(std::move(on_event)) {}

  void record(const StatRecord& record) override {
    if (on_record_) on_record_(record);
  }
  void scalars(std::int64_t iteration, const Scalars& values) override {
    if (on_scalars_) on_scalars_(iteration, values);
  }
  void finding(const Finding& finding) override {
    if (on_finding_) on_finding_(finding);
  }
  void event(std::int64_t iteration, const Event& event) override {
    if (on_event_) on_event_(iteration, event);
  }
  void end_of_step(std::int64_t) override {}
  void close() override {}

 private:
  std::function<void(const StatRecord&)> on_record_;
  std::function<void(std::int64_t, const Scalars&)> on_scalars_;
  std::function<void(const Finding&)> on_finding_;
  std::function<void(std::int64_t, const Event&)> on_event_;
};

}  // namespace

std::unique_ptr<Sink> make_callback_sink(std::function<void(const StatRecord&)> on_record,
                                         std::function<void(std::int64_t, const Scalars&)> on_scalars,
                                         std::function<void(const Finding&)> on_finding,
                                         std::function<void(std::int64_t, const Event&)> on_event) {
  return std::make_unique<CallbackSink>(std::move(on_record), std::move(on_scalars), std::move(on_finding),
                                        std::move(on_event));
}

}  // namespace amaxscope
