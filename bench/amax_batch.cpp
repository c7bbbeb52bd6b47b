// What the MAX of amaxes over a group costs: a collective for each tensor, one for each while the next tensor
// is read, and one for all. Prints a table, one line a size of tensor: microseconds for each tensor on rank
// 0, the least of many rounds, above what reading the tensors alone takes. usage: launch/mpirun_local -n
// RANKS build/release/bench/amax_batch
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/amax_reducer.hpp"
#include "collectives/mpi/mpi_communicator.hpp"
#include "kernels/amax.hpp"

namespace amaxscope {
namespace {

constexpr int kTensors = 60;  ///< as many amaxes as one frame carries
constexpr int kRounds = 40;
constexpr CollectiveTag kTag{.what = "amaxes"};

class Run {
 public:
  Run(Communicator& group, std::int64_t elements) : group_(group), guard_(group, {}), reducer_(guard_) {
    for (int i = 0; i < kTensors; ++i) {
      tensors_.push_back(Tensor(DType::kF32, {elements}));
      tensors_.back().values<float>()[0] = static_cast<float>(i + group.rank());
    }
  }

  void only_read() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) amaxes_[i] = amax_bits(tensors_[i]);
  }
  void one_by_one() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      amaxes_[i] = amax_bits(tensors_[i]);
      reducer_.reduce({&amaxes_[i], 1}, kTag);
    }
  }
  /// As bare as it can be: without the guard's signature, deadline and flight record.
  void overlapped() {
    std::unique_ptr<PendingCollective> pending;
    std::shared_ptr<Tensor> frame;
    const auto finish = [&](std::size_t i) {
      while (!pending->test()) {
      }
      amaxes_[i] = frame->values<std::uint32_t>()[0];
    };
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::uint32_t amax = amax_bits(tensors_[i]);
      if (pending != nullptr) finish(i - 1);
      frame = std::make_shared<Tensor>(DType::kU32, Shape{CollectiveGuard::kFrameWords});
      frame->values<std::uint32_t>()[0] = amax;
      pending = group_.start_all_reduce(frame, ReduceOp::kMax, kTag);
    }
    finish(tensors_.size() - 1);
  }
  void batched() {
    only_read();
    reducer_.reduce(amaxes_, kTag);
  }
  [[nodiscard]] const std::vector<std::uint32_t>& amaxes() const { return amaxes_; }

 private:
  Communicator& group_;
  CollectiveGuard guard_;
  AmaxReducer reducer_;
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> amaxes_ = std::vector<std::uint32_t>(kTensors);
};

double microseconds(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

int run(int argc, char** argv) {
  MpiEnvironment mpi(&argc, &argv);
  const auto world = make_mpi_communicator(MPI_COMM_WORLD);
  const auto print = [&](const std::string& line) {
    if (world->rank() == 0) std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  };
  print(fmt::format("{:>5} {:>10} {:>14} {:>12} {:>12} {:>10}\n", "ranks", "KiB each", "read alone [us]",
                    "one by one", "overlapped", "batched"));
  for (const std::int64_t elements : {std::int64_t{256}, std::int64_t{1} << 14, std::int64_t{1} << 18}) {
    Run work(*world, elements);
    const std::vector<std::function<void()>> ways = {[&] { work.only_read(); }, [&] { work.one_by_one(); },
                                                     [&] { work.overlapped(); }, [&] { work.batched(); }};
    std::vector<double> least(ways.size(), 1e30);
    std::vector<std::vector<std::uint32_t>> results(ways.size());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t way = 0; way < ways.size(); ++way) {
        world->barrier({.traffic = Traffic::kTrainer, .what = "start of a round"});
        least[way] = std::min(least[way], microseconds(ways[way]));
        results[way] = work.amaxes();
      }
    }
    if (results[2] != results[1] || results[3] != results[1]) {
      print("the ways of reducing do not agree\n");
      return 1;
    }
    print(fmt::format("{:>5} {:>10} {:>14.2f} {:>12.2f} {:>12.2f} {:>10.2f}\n", world->size(),
                      elements * 4 / 1024, least[0] / kTensors, (least[1] - least[0]) / kTensors,
                      (least[2] - least[0]) / kTensors, (least[3] - least[0]) / kTensors));
  }
  return 0;
}

}  // namespace
}  // namespace amaxscope

int main(int argc, char** argv) { return amaxscope::run(argc, argv); }
