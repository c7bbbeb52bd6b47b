// Threads of one process as ranks: for tests, and for programs that want one rank without MPI.
#pragma once

#include <functional>
#include <memory>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// A group of one rank: every operation is a copy. Its abort() prints the reason and ends the process.
std::unique_ptr<Communicator> make_single_rank_communicator();

/// Runs body(communicator) on `ranks` threads that form one group, and returns when all have. If a rank
/// throws, the others' collectives throw too instead of waiting for it, and the first error is rethrown here.
/// Where MPI would hang or mix bytes these throw Error(kInternal): a blocking collective with a rank whose
/// body has returned, ranks that call different collectives or hand in different numbers of bytes, and two
/// ranks that send to each other (send() waits until it was received, as MPI's does when the message is
/// large). abort() throws Error(kInternal) on every rank, so that a test can see it. Each rank counts for
/// itself. Reductions are done in the order of the ranks: the same bits in every run.
void run_loopback_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace amaxscope
