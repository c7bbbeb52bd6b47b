// libamaxscope_nccl.so
#include "capi/amaxscope_nccl.h"

#include "capi/calls.hpp"
#include "capi/resources.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstNcclOptions = sizeof(amaxscope_nccl_options);

std::unique_ptr<Communicator> communicator_over(ncclComm_t comm, const amaxscope_nccl_options& given) {
  AMAXSCOPE_CHECK(comm != nullptr, ErrorCode::kUsage, "comm is NULL");
  ExistingNccl existing{.comm = comm};
  if (given.world_ranks != nullptr) {
    int ranks = 0;
    AMAXSCOPE_CHECK(ncclCommCount(comm, &ranks) == ncclSuccess, ErrorCode::kUsage,
                    "comm is no NCCL communicator that works: it does not say how many ranks it has");
    existing.world_ranks.assign(given.world_ranks, given.world_ranks + ranks);
  }
  if (given.abort != nullptr) {
    existing.abort = [given](int status, std::string_view reason) {
      given.abort(given.abort_context, status, std::string(reason).c_str());
    };
  }
  NcclOptions options;
  if (given.deadline_seconds != 0.0) {
    options.deadline = milliseconds_of(given.deadline_seconds, "options.deadline_seconds");
  }
  return make_nccl_communicator(existing, options);
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_group_from_nccl(ncclComm_t comm, const amaxscope_nccl_options* options,
                                           amaxscope_group** group) {
  return capi::call([&] {
    capi::require_same_version("libamaxscope_nccl.so");
    amaxscope_group*& result = capi::required(group, "group");
    amaxscope_nccl_options given{};
    if (options != nullptr) given = capi::taken(options, capi::kFirstNcclOptions, "options");
    auto made = std::make_unique<amaxscope_group>();
    made->communicator = capi::communicator_over(comm, given);
    result = made.release();
  });
}

}  // extern "C"
