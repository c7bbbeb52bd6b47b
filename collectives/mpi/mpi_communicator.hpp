// Communicator over Open MPI (any MPI-3). mpi.h is included in this folder only, and by programs.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/host_staging.hpp"

namespace amaxscope {

/// Owns MPI_Init_thread .. MPI_Finalize of a program. MPI_THREAD_SERIALIZED is asked for. Not for libraries:
/// they are given a communicator.
class MpiEnvironment {
 public:
  MpiEnvironment(int* argc, char*** argv);
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
};

/// A group with the members of `parent`, over a duplicate of it: the caller's own communicator is never used.
/// Collective over parent. Throws Error(kUsage) when MPI is not initialised. Destruction frees the duplicate
/// and never waits: after MPI_Finalize, or with an abandoned collective that has not completed, it is left as
/// it is. f64 and f32 sums are in MPI's order (the same bits on all ranks, not for all numbers of ranks); f16
/// and bf16 sums gather the values and add them in fp32 in the order of the ranks.
/// With staging it takes tensors of that device as well, which MPI itself never sees: the host waits for the
/// view's stream, and the result is stored on it (staged.hpp).
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent,
                                                    std::shared_ptr<HostStaging> staging = nullptr);

}  // namespace amaxscope
