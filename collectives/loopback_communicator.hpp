// Threads of one process as ranks: for tests, and for programs that want one rank without MPI.
#pragma once

#include <functional>
#include <memory>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// A group of one rank: every operation is a copy. Its abort() ends the process.
std::unique_ptr<Communicator> make_single_rank_communicator();

/// Runs body(communicator) on `ranks` threads that form one group, and returns when all have. If a rank throws,
/// the others' collectives throw too instead of waiting for it, and the first error is rethrown here.
/// abort() throws Error(kInternal) on every rank, so that a test can see it.
void run_loopback_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace amaxscope
