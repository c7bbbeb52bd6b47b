// In place of tensorboard_sink.cpp where there is no protobuf.
#include "core/error.hpp"
#include "runtime/sinks/tensorboard_sink.hpp"

namespace amaxscope {

bool has_tensorboard_sink() noexcept { return false; }

std::unique_ptr<Sink> make_tensorboard_sink(const std::filesystem::path&, int, std::function<double()>) {
  throw Error(
      ErrorCode::kUsage,
      "this build writes no TensorBoard events: it was configured without protobuf; install libprotobuf-dev "
      "and protobuf-compiler (launch/install_deps) and build again");
}

}  // namespace amaxscope
