#include "tests/fault/saboteur.hpp"

#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace amaxscope::testing {

namespace {

class SaboteurFeature final : public Feature {
 public:
  SaboteurFeature(FeatureConfig config, const Saboteur& saboteur)
      : Feature(std::move(config)), saboteur_(saboteur) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&, std::int64_t) const override {
    return Decision::always();
  }
  void inspect_tensor(const InspectContext& context) override {
    // The tensors of this layer have been dumped when this is called, the others' of the iteration have not.
    if (context.tensor.layer == "decoder.layers.1.mlp.linear_fc1") saboteur_.strike("dump");
    if (context.tensor.layer != "decoder.layers.2.mlp.linear_fc1") return;
    saboteur_.strike("hook");
    saboteur_.strike("amax");
    if (context.tp_amax == nullptr) return;
    std::array<std::uint32_t, 2> amaxes{context.amax(), 0};
    const std::size_t count = saboteur_.strikes("count", "amax") ? 2 : 1;
    const CollectiveTag tag{.what = "amax",
                            .layer = context.tensor.layer,
                            .tensor = saboteur_.strikes("tensor", "amax") ? "weight" : "activation"};
    context.tp_amax->reduce(std::span(amaxes).first(count), tag);
  }

 private:
  const Saboteur& saboteur_;
};

}  // namespace

bool Saboteur::strikes(std::string_view fault, std::string_view place) const {
  return plan_.fault == fault && plan_.place == place && plan_.rank == rank_ && plan_.iteration == iteration_;
}

void Saboteur::strike(std::string_view place) const {
  std::fflush(nullptr);
  if (strikes("throw", place)) throw std::runtime_error("planted failure");
  if (strikes("exit0", place)) std::_Exit(0);
  if (strikes("exit3", place)) std::_Exit(3);
  if (strikes("kill", place)) std::raise(SIGKILL);
  if (strikes("stop", place)) std::raise(SIGSTOP);
  if (strikes("finalize", place)) {
    MPI_Finalize();
    std::_Exit(0);
  }
  if (strikes("full", place)) {
    // From here on every file of this process is as large as it may be: what a full disk is to a writer.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  if (strikes("sleep", place)) std::this_thread::sleep_for(std::chrono::seconds(2));
}

FeatureEntry Saboteur::entry() const {
  FeatureSchema schema;
  schema.name = "Saboteur";
  schema.doc = "Fails as a test wants it to.";
  schema.takes_tensors = true;
  return {.schema = std::move(schema), .base_namespace = false, .make = [this](FeatureConfig config) {
            return std::make_unique<SaboteurFeature>(std::move(config), *this);
          }};
}

}  // namespace amaxscope::testing
