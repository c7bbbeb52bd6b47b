#include "runtime/sinks/tensorboard_sink.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/sinks/append_file.hpp"
#include "runtime/sinks/event.pb.h"
#include "runtime/sinks/event_record.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kBin = "histogram_2^";
constexpr std::string_view kBelow = "histogram_below_2^";
constexpr std::string_view kZero = "histogram_zero";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "host";
}

/// The bins of a record, gathered and then written as one histogram.
class Magnitudes {
 public:
  /// Whether the value is one of them.
  bool take(const StatValue& value) {
    const std::string_view name = value.name;
    if (name == kZero) {
      below_ += value.value;
    } else if (name.starts_with(kBelow)) {
      below_ += value.value;
      first_ = exponent(name.substr(kBelow.size()));
    } else if (name.starts_with(kBin)) {
      bins_[exponent(name.substr(kBin.size()))] = value.value;
    } else {
      return false;
    }
    seen_ = true;
    return true;
  }
  [[nodiscard]] bool seen() const noexcept { return seen_; }

  /// Of magnitudes: the sign of an element is not in the bins.
  void write(const StatRecord& record, tensorboard::Histogram& out) const {
    const int first = bins_.empty() ? first_.value_or(0)
                                    : std::min(bins_.begin()->first, first_.value_or(bins_.begin()->first));
    double count = below_;
    out.add_bucket_limit(std::ldexp(1.0, first));
    out.add_bucket(below_);
    int edge = first;
    for (const auto& [exponent, elements] : bins_) {
      if (exponent > edge) {  // a bucket begins where the one before it ends
        out.add_bucket_limit(std::ldexp(1.0, exponent));
        out.add_bucket(0);
      }
      edge = exponent + 1;
      out.add_bucket_limit(std::ldexp(1.0, edge));
      out.add_bucket(elements);
      count += elements;
    }
    out.set_min(0);
    out.set_max(std::ldexp(1.0, edge));
    out.set_num(count);
    for (const StatValue& value : record.stats) {
      if (value.name == "l1_norm") out.set_sum(value.value);
      if (value.name == "l2_norm") out.set_sum_squares(value.value * value.value);
    }
  }

 private:
  static int exponent(std::string_view text) { return std::atoi(std::string(text).c_str()); }
  bool seen_ = false;
  double below_ = 0;
  std::optional<int> first_;
  std::map<int, double> bins_;
};

class TensorboardSink final : public Sink {
 public:
  TensorboardSink(const std::filesystem::path& log_dir, int world_rank, std::function<double()> seconds)
      : seconds_(seconds ? std::move(seconds) : std::function<double()>(seconds_now)),
        file_(log_dir / "tensorboard" / fmt::format("rank_{}", world_rank) /
                  fmt::format("events.out.tfevents.{}.{}.{}", static_cast<std::int64_t>(seconds_()), host(),
                              ::getpid()),
              AppendFile::Content::kBytes) {}

  void record(const StatRecord& record) override {
    if (!record.leader || record.phase == Phase::kRecompute) return;
    const std::string place =
        record.layer + "/" + record.tensor + (record.phase == Phase::kEval ? "/eval/" : "/");
    Magnitudes magnitudes;
    for (const StatValue& value : record.stats) {
      if (magnitudes.take(value) || value.detail) continue;
      add(place + value.name, value.value);
    }
    if (!magnitudes.seen()) return;
    tensorboard::Summary::Value& value = *summary_.add_value();
    value.set_tag(place + "histogram");
    magnitudes.write(record, *value.mutable_histogram());
  }

  void scalars(std::int64_t, const Scalars& values) override {
    for (const auto& [name, value] : values) add(name, value);
  }

  void end_of_step(std::int64_t iteration) override {
    if (summary_.value_size() == 0) return;
    std::string bytes;
    if (!std::exchange(begun_, true)) {
      tensorboard::Event first;
      first.set_wall_time(seconds_());
      first.set_file_version("brain.Event:2");
      bytes = event_record(first.SerializeAsString());
      // A restart comes again to steps that an earlier file has: TensorBoard then leaves those of that file
      // out.
      tensorboard::Event start;
      start.set_wall_time(seconds_());
      start.set_step(iteration);
      start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
      bytes += event_record(start.SerializeAsString());
    }
    tensorboard::Event event;
    event.set_wall_time(seconds_());
    event.set_step(iteration);
    event.mutable_summary()->Swap(&summary_);
    bytes += event_record(event.SerializeAsString());
    file_.append(bytes);
  }

  void close() override {}

 private:
  void add(const std::string& tag, double number) {
    tensorboard::Summary::Value& value = *summary_.add_value();
    value.set_tag(tag);
    value.set_simple_value(static_cast<float>(number));
  }

  std::function<double()> seconds_;
  AppendFile file_;
  tensorboard::Summary summary_;
  bool begun_ = false;
};

}  // namespace

bool has_tensorboard_sink() noexcept { return true; }

std::unique_ptr<Sink> make_tensorboard_sink(const std::filesystem::path& log_dir, int world_rank,
                                            std::function<double()> seconds) {
  return std::make_unique<TensorboardSink>(log_dir, world_rank, std::move(seconds));
}

}  // namespace amaxscope
