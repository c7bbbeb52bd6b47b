// Makes a libamaxscope_train_cuda.so of imitations: when it is loaded, kernels go to the emulator, and a call
// fails that IMITATED_FAILURE names; when the program ends, what should not have been is said.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/device/connect_emulator.hpp"

namespace amaxscope::testing {
namespace {

struct Connected {
  Connected() {
    connect_emulator();
    // "1 cublasLtMatmul 5": on rank 1 the fifth call fails.
    const char* const failure = std::getenv("IMITATED_FAILURE");
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (failure == nullptr || rank == nullptr) return;
    std::istringstream words(failure);
    std::string on;
    std::string function;
    int nth = 0;
    if (words >> on >> function >> nth && on == rank) fake::fail_at(function, nth, 13);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;
  ~Connected() {
    for (const std::string& text : fake::violations())
      std::fputs(fmt::format("VIOLATION: {}\n", text).c_str(), stderr);
    std::fputs(fmt::format("imitated CUDA: {} kernels, {} NCCL all-reduces\n",
                           fake::calls("cudaLaunchKernel"), fake::calls("ncclAllReduce"))
                   .c_str(),
               stderr);
  }
};
const Connected kConnected;

}  // namespace
}  // namespace amaxscope::testing
