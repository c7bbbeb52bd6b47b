// The CPU kernels against what memory allows, and against what one would use instead. Each item is timed in
// turns with the limit of its shape; bench/run prints the table.
#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/kernels/limits.hpp"
#include "bench/kernels/paired.hpp"
#include "bench/kernels/peers.hpp"
#include "core/tensor.hpp"
#include "kernels/amax.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cast.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/finite_scan.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/tensor_stats.hpp"
#include "kernels/worker_pool.hpp"

namespace amaxscope::bench {
namespace {

/// Codes in one direction.
struct BlockCodes {
  Tensor codes;
  Tensor scales;
  BlockScaledView view;

  BlockCodes(const BlockLayout& layout, const Shape& shape)
      : codes(layout.format, layout.codes_shape(shape.rows(), shape.cols())),
        scales(layout.scale_format, layout.scales_shape(shape.rows(), shape.cols())) {
    view.codes = codes;
    view.scales = scales;
    view.layout = layout;
  }
  [[nodiscard]] BlockOutput output() { return {codes, scales}; }
};
constexpr float kFp4Amax = 5.0F;
const std::array<std::string_view, 6> kBlockFormats = {
    "mxfp8", "mxfp8_columnwise", "fp8_block", "fp8_block_columnwise", "fp8_block_2d", "nvfp4"};

/// One entry for each of kBlockFormats.
std::vector<BlockCodes> block_codes(const Tensor& x) {
  std::vector<BlockCodes> all;
  all.reserve(kBlockFormats.size());
  for (const bool columnwise : {false, true}) {
    BlockCodes& codes = all.emplace_back(mxfp8_layout(DType::kE4M3, columnwise, false), x.shape());
    BlockOutputs out;
    (columnwise ? out.columnwise : out.rowwise) = codes.output();
    quantize_mxfp8(x, false, out);
  }
  for (const bool columnwise : {false, true}) {
    BlockCodes& codes = all.emplace_back(fp8_block_layout(DType::kE4M3, columnwise, false), x.shape());
    BlockOutputs out;
    (columnwise ? out.columnwise : out.rowwise) = codes.output();
    quantize_fp8_blocks(x, {}, false, out);
  }
  BlockCodes& squares = all.emplace_back(fp8_block_layout(DType::kE4M3, false, true), x.shape());
  quantize_fp8_blocks(x, {}, true, {.rowwise = squares.output()});
  BlockCodes& fp4 = all.emplace_back(nvfp4_layout(false, false), x.shape());
  quantize_nvfp4(x, {.rowwise_amax = kFp4Amax, .columnwise_amax = kFp4Amax}, {.rowwise = fp4.output()});
  fp4.view.tensor_scale = nvfp4_tensor_scale(kFp4Amax, 448.0F);
  return all;
}

/// Buffers of one size, filled once.
struct Data {
  Data(std::int64_t rows, std::int64_t cols, WorkerPool* own_pool)
      : pool(own_pool),
        f32(DType::kF32, {rows, cols}, {}, stream()),
        bf16(DType::kBF16, {rows, cols}, {}, stream()),
        values(DType::kF32, {rows, cols}),
        codes(DType::kE4M3, {rows, cols}, {}, stream()),
        codes_e5m2(DType::kE5M2, {rows, cols}),
        transposed(DType::kE4M3, {cols, rows}),
        fp4(DType::kE2M1, {rows, cols}),
        scratch(DType::kF32, {rows, cols}),
        scale(Tensor::of<float>({37.5F}, {1})),
        scale_inv(Tensor::of<float>({1.0F / 37.5F}, {1})) {
    std::mt19937 engine(7);
    std::normal_distribution<float> normal;
    auto x = f32.values<float>();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 50 == 0 ? 0.0F : normal(engine);
    convert(f32, bf16);
    cast_to_fp8(f32, scale, codes);
    for (auto& value : values.values<float>()) value = 1.0F;
    for (auto& value : scratch.values<float>()) value = 1.0F;
    if (pool == nullptr) blocks = block_codes(f32);
  }
  [[nodiscard]] std::size_t numel() const { return static_cast<std::size_t>(f32.numel()); }

  [[nodiscard]] Stream stream() const { return pool == nullptr ? Stream{} : pool->stream(); }
  [[nodiscard]] std::size_t workers() const { return pool == nullptr ? 1 : pool->threads(); }

  WorkerPool* pool;  ///< null: one thread
  Tensor f32, bf16, values, codes, codes_e5m2, transposed, fp4, scratch, scale, scale_inv;
  std::vector<BlockCodes> blocks;  ///< of f32, in the order of block_formats(); one thread only
};

/// reads and writes: of the limit (limits.hpp); item: what is timed.
struct Item {
  std::string name;
  bool bf16;
  int reads, writes;  ///< writes 0: the limit only reads
  bool may_stream;    ///< the kernel streams when its output is large
  std::function<void(Data&)> action;
};

BlockOutputs block_outputs(Data&, Tensor& codes, Tensor& scales) {
  return {.rowwise = BlockOutput{.codes = codes, .scales = scales}};
}

std::vector<Item> items() {
  const auto mx = [](bool bf16) {
    return [bf16](Data& d) {
      Tensor scales(DType::kE8M0,
                    mxfp8_layout(DType::kE4M3, false, false).scales_shape(d.f32.rows(), d.f32.cols()));
      quantize_mxfp8(bf16 ? d.bf16 : d.f32, false, block_outputs(d, d.codes, scales));
    };
  };
  const auto blocks = [](bool bf16) {
    return [bf16](Data& d) {
      Tensor scales(DType::kF32,
                    fp8_block_layout(DType::kE4M3, false, false).scales_shape(d.f32.rows(), d.f32.cols()));
      quantize_fp8_blocks(bf16 ? d.bf16 : d.f32, {}, false, block_outputs(d, d.codes, scales));
    };
  };
  const auto fp4 = [](bool bf16, bool stochastic, FourOverSix four_over_six = FourOverSix::kOff) {
    return [bf16, stochastic, four_over_six](Data& d) {
      const BlockLayout layout = nvfp4_layout(false, false);
      Tensor scales(DType::kE4M3, layout.scales_shape(d.f32.rows(), d.f32.cols()));
      Nvfp4Cast cast{.four_over_six = four_over_six, .rowwise_amax = kFp4Amax, .columnwise_amax = kFp4Amax};
      if (stochastic) cast.stochastic = StochasticRounding{.key = 1, .call = 0};
      quantize_nvfp4(bf16 ? d.bf16 : d.f32, cast, block_outputs(d, d.fp4, scales));
    };
  };
  std::vector<Item> all;
  for (const bool bf16 : {false, true}) {
    const std::string type = bf16 ? "bf16" : "f32";
    const int reads = bf16 ? 2 : 4;
    const auto x = [bf16](Data& d) -> Tensor& { return bf16 ? d.bf16 : d.f32; };
    all.push_back(
        {"amax/" + type, bf16, 1, 0, false, [x](Data& d) { benchmark::DoNotOptimize(amax_bits(x(d))); }});
    all.push_back({"finite_scan/" + type, bf16, 1, 0, false,
                   [x](Data& d) { benchmark::DoNotOptimize(finite_scan(x(d))); }});
    all.push_back(
        {"stats/" + type, bf16, 1, 0, false, [x](Data& d) { benchmark::DoNotOptimize(tensor_stats(x(d))); }});
    all.push_back({"error/" + type, bf16, 1, 0, false, [x](Data& d) {
                     benchmark::DoNotOptimize(quantization_error_of_cast(x(d), DType::kE4M3, 37.5F));
                   }});
    if (!bf16) {
      all.push_back({"error_of_codes/f32", false, 1, 0, false, [](Data& d) {
                       benchmark::DoNotOptimize(quantization_error(d.f32, d.codes, 37.5F, 1.0F / 37.5F));
                     }});
    }
    all.push_back(
        {"cast_e4m3/" + type, bf16, reads, 1, true, [x](Data& d) { cast_to_fp8(x(d), d.scale, d.codes); }});
    all.push_back({"cast_e5m2/" + type, bf16, reads, 1, true,
                   [x](Data& d) { cast_to_fp8(x(d), d.scale, d.codes_e5m2); }});
    all.push_back({"cast_transpose/" + type, bf16, reads, 2, true,
                   [x](Data& d) { cast_transpose_to_fp8(x(d), d.scale, d.codes, d.transposed); }});
    all.push_back({"mxfp8/" + type, bf16, reads, 1, false, mx(bf16)});
    all.push_back({"fp8_block/" + type, bf16, reads, 1, false, blocks(bf16)});
    all.push_back({"nvfp4/" + type, bf16, 2 * reads, 1, false, fp4(bf16, false)});
    all.push_back({"nvfp4_stochastic/" + type, bf16, 2 * reads, 1, false, fp4(bf16, true)});
    all.push_back({"nvfp4_four_over_six/" + type, bf16, 2 * reads, 1, false,
                   fp4(bf16, false, FourOverSix::kAbsoluteError)});
  }
  all.push_back(
      {"dequantize/f32", false, 1, 4, true, [](Data& d) { dequantize_fp8(d.codes, d.scale_inv, d.values); }});
  return all;
}

/// Of block-scaled codes, which one thread looks at.
std::vector<Item> block_items() {
  std::vector<Item> all;
  for (std::size_t i = 0; i < kBlockFormats.size(); ++i) {
    const std::string format(kBlockFormats[i]);
    all.push_back({"error_of_" + format + "/f32", false, 1, 0, false,
                   [i](Data& d) { benchmark::DoNotOptimize(quantization_error(d.f32, d.blocks[i].view)); }});
    const bool fp4 = format == "nvfp4";
    all.push_back({"dequantize_" + format + "/f32", false, 1, fp4 ? 8 : 4, false,
                   [i](Data& d) { dequantize_blocks(d.blocks[i].view, d.values); }});
  }
  return all;
}

std::vector<Item> peers() {
  const auto f32 = [](Data& d) { return d.f32.values<float>().data(); };
  const auto codes = [](Data& d) { return d.codes.values<std::uint8_t>().data(); };
  std::vector<Item> all;
  all.push_back({"amax/f32/plain_loop", false, 1, 0, false,
                 [=](Data& d) { benchmark::DoNotOptimize(loop_amax(f32(d), d.numel())); }});
  all.push_back({"stats/f32/nine_passes", false, 1, 0, false,
                 [=](Data& d) { benchmark::DoNotOptimize(nine_passes(f32(d), d.numel())); }});
  all.push_back({"cast_transpose/f32/plain_loop", false, 4, 2, true, [=](Data& d) {
                   naive_cast_transpose(f32(d), static_cast<std::size_t>(d.f32.rows()),
                                        static_cast<std::size_t>(d.f32.cols()), 37.5F, codes(d),
                                        d.transposed.values<std::uint8_t>().data());
                 }});
  if (have_nvidia_conversion()) {
    all.push_back({"cast_e4m3/f32/nvidia_host", false, 4, 1, true,
                   [=](Data& d) { nvidia_cast(f32(d), d.numel(), 37.5F, codes(d)); }});
  }
  return all;
}

void run(benchmark::State& state, Data& data, const Item& item) {
  // Codes are read where values are written: two of them in a byte where eight bytes are written for each.
  Tensor& x = item.writes == 4 ? data.codes : item.writes == 8 ? data.fp4 : item.bf16 ? data.bf16 : data.f32;
  const std::size_t read = x.bytes();
  const std::size_t moved =
      read + read / static_cast<std::size_t>(item.reads) * static_cast<std::size_t>(item.writes);
  const void* from = x.view().data();
  void* to = data.scratch.mutable_view().data();
  const bool streamed = item.may_stream && cpu::store_for(moved - read) == cpu::Store::kStreamed;
  const std::size_t share = read / data.workers();
  const std::size_t share_written = (moved - read) / data.workers();
  const std::function<void(std::size_t)> limit = [&](std::size_t part) {
    const auto* mine = static_cast<const char*>(from) + part * share;
    if (item.writes == 0) {
      benchmark::DoNotOptimize(read_all(mine, share));
    } else {
      read_and_write(item.reads, item.writes, mine, share, static_cast<char*>(to) + part * share_written,
                     streamed);
    }
  };
  measure(
      state, moved, [&] { item.action(data); },
      [&] {
        if (data.pool == nullptr) {
          limit(0);
        } else {
          data.pool->run(data.workers(), limit);
        }
      });
  state.counters["workers"] = static_cast<double>(data.workers());
}

}  // namespace
}  // namespace amaxscope::bench

int main(int argc, char** argv) {
  using namespace amaxscope::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("instructions", std::string(amaxscope::cpu::loops().name));
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  amaxscope::WorkerPool pool(cores);
  Data small(256, 1024, nullptr);
  Data large(4096, 4096, nullptr);
  Data shared(4096, 4096, &pool);
  std::vector<Item> all = items();
  const std::size_t own = all.size();
  for (Item& item : block_items()) all.push_back(std::move(item));
  for (Item& peer : peers()) all.push_back(std::move(peer));
  for (auto* data : {&small, &large, &shared}) {
    if (data == &shared && cores == 1) continue;
    const std::string size = data == &small   ? "/256x1024"
                             : data == &large ? "/4096x4096"
                                              : "/4096x4096/threads";
    for (std::size_t i = 0; i < (data == &shared ? own : all.size()); ++i) {
      const Item& item = all[i];
      benchmark::RegisterBenchmark((item.name + size).c_str(),
                                   [data, &item](benchmark::State& state) { run(state, *data, item); })
          ->Iterations(data == &small ? 61 : 15)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
