// How a process with communicators may end: a program, because it is about what is outside of MPI_Init ..
// MPI_Finalize and about the status of a whole job. usage: mpi_process_ends outlive|abort
#include <cstdio>
#include <memory>
#include <string_view>

#include "collectives/mpi/mpi_communicator.hpp"
#include "core/error.hpp"

namespace {

using amaxscope::Communicator;
constexpr amaxscope::CollectiveTag kTag = {.what = "end"};

bool is_refused_outside_of_mpi() {
  try {
    static_cast<void>(amaxscope::make_mpi_communicator(MPI_COMM_WORLD));
  } catch (const amaxscope::Error& error) {
    return error.code() == amaxscope::ErrorCode::kUsage;
  }
  return false;
}

/// Communicators and a collective that never completes are destroyed after MPI is gone.
int outlive(int* argc, char*** argv) {
  if (!is_refused_outside_of_mpi()) return 1;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<amaxscope::PendingCollective> pending;
  {
    const amaxscope::MpiEnvironment mpi(argc, argv);
    world = amaxscope::make_mpi_communicator(MPI_COMM_WORLD);
    group = world->split(0, world->rank(), kTag);
    if (world->rank() != 0) {
      pending = group->start_all_reduce(
          std::make_shared<amaxscope::Tensor>(amaxscope::DType::kF64, amaxscope::Shape{1000}),
          amaxscope::ReduceOp::kSum, kTag);
    }
    world->barrier(kTag);
  }
  pending.reset();
  group.reset();
  world.reset();
  if (!is_refused_outside_of_mpi()) return 1;
  std::puts("ended");
  return 0;
}

/// The others are in a collective that nobody will complete.
int abort_job(int* argc, char*** argv) {
  const amaxscope::MpiEnvironment mpi(argc, argv);
  const auto world = amaxscope::make_mpi_communicator(MPI_COMM_WORLD);
  if (world->rank() == 1) world->abort(42, "scales differ");
  world->barrier(kTag);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view scene = argc == 2 ? argv[1] : "";
  if (scene == "outlive") return outlive(&argc, &argv);
  if (scene == "abort") return abort_job(&argc, &argv);
  std::fputs("usage: mpi_process_ends outlive|abort\n", stderr);
  return 2;
}
