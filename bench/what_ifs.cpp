// What several recipes would make of one tensor: time and bytes read against the number of recipes and
// directions, together as LogFp8TensorStats does it on the host and one by one. Prints a table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "features/what_ifs_at_once.hpp"
#include "tests/support/page_loads.hpp"

namespace amaxscope::bench {
namespace {

struct Asked {
  const char* name;
  RecipeKind recipe;
  Usage wanted;
};
/// In the order in which they are added.
const std::vector<Asked> kAsked = {{"current scaling", RecipeKind::kCurrent, {true, false}},
                                   {"delayed scaling", RecipeKind::kDelayed, {true, false}},
                                   {"MXFP8", RecipeKind::kMxfp8, {true, false}},
                                   {"MXFP8 columnwise", RecipeKind::kMxfp8, {false, true}},
                                   {"FP8 blocks", RecipeKind::kBlock, {true, false}},
                                   {"FP8 blocks columnwise", RecipeKind::kBlock, {false, true}}};

InspectedTensor activation() {
  InspectedTensor tensor;
  tensor.layer = "layer";
  tensor.name = "activation";
  tensor.kind = TensorKind::kActivation;
  return tensor;
}

InspectContext context_of(const InspectedTensor& tensor, const TensorView& x) {
  return {.tensor = tensor,
          .iteration = 0,
          .moment = {},
          .x = x,
          .has_original = true,
          .rowwise = nullptr,
          .columnwise = nullptr,
          .quantizer = nullptr,
          .tp_amax = nullptr};
}

using Action = std::function<void(const TensorView&)>;

double milliseconds(const Action& action, const TensorView& x) {
  double least = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    action(x);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    least = std::min(least, time.count());
  }
  return least;
}

double readings(const Action& action, testing::PageLoads& memory, const TensorView& counted) {
  memory.start();
  action(counted);
  const std::size_t read = memory.bytes_read();
  memory.open();
  return static_cast<double>(read) / static_cast<double>(counted.bytes());
}

void run() {
  const Shape shape{4096, 2048};
  Tensor x(DType::kF32, shape);
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  for (float& value : x.values<float>()) value = normal(engine);
  // The same numbers where reading is counted, seen through a cache of 4 MiB.
  testing::PageLoads memory(x.bytes(), std::size_t{4} << 20);
  std::copy_n(x.values<float>().data(), x.numel(), static_cast<float*>(memory.data()));
  const TensorView counted(memory.data(), DType::kF32, shape);
  const InspectedTensor tensor = activation();
  fmt::print("f32 {} x {}, one thread; readings of the tensor through a cache of 4 MiB\n", shape.rows(),
             shape.cols());
  fmt::print("{:2} {:24} {:>12} {:>10} {:>14} {:>10}\n", "n", "and", "together ms", "readings",
             "one by one ms", "readings");
  std::vector<std::unique_ptr<WhatIf>> what_ifs;
  std::vector<WhatIfRequest> requests;
  for (std::size_t n = 1; n <= kAsked.size(); ++n) {
    const Asked& last = kAsked[n - 1];
    if (!requests.empty() && requests.back().what_if->recipe() == last.recipe) {
      requests.back().wanted = {true, true};
    } else {
      what_ifs.push_back(std::make_unique<WhatIf>(last.recipe, tensor));
      requests.push_back({what_ifs.back().get(), last.wanted});
    }
    const Action together = [&](const TensorView& view) {
      static_cast<void>(measure_at_once(context_of(tensor, view), requests));
    };
    const Action one_by_one = [&](const TensorView& view) {
      const InspectContext context = context_of(tensor, view);
      for (const WhatIfRequest& request : requests) {
        static_cast<void>(request.what_if->measure(context, request.wanted, false));
      }
    };
    fmt::print("{:2} {:24} {:12.1f} {:10.1f} {:14.1f} {:10.1f}\n", n, last.name, milliseconds(together, x),
               readings(together, memory, counted), milliseconds(one_by_one, x),
               readings(one_by_one, memory, counted));
  }
}

}  // namespace
}  // namespace amaxscope::bench

int main() { amaxscope::bench::run(); }
