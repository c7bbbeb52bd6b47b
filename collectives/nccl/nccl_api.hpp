// NCCL's calls, types and versions as the rest of this folder uses them. Everything that depends on NCCL's
// version is here. Internal to the NCCL backend.
#pragma once

#include <nccl.h>

#include <source_location>
#include <string>
#include <string_view>

#include "collectives/communicator.hpp"
#include "core/error.hpp"

namespace amaxscope {

/// An Error(kInternal) that knows what NCCL said. The message holds the operation, NCCL's text of the result
/// and its own words on the last error of this process.
class NcclError : public Error {
 public:
  NcclError(ncclResult_t result, std::string_view operation,
            std::source_location site = std::source_location::current());
  [[nodiscard]] ncclResult_t result() const noexcept { return result_; }

 private:
  ncclResult_t result_;
};

/// Whether the call is done or under way (ncclInProgress, which communicators that do not block answer).
constexpr bool is_accepted(ncclResult_t result) noexcept {
  return result == ncclSuccess || result == ncclInProgress;
}

/// Throws NcclError unless the call is accepted.
void check_nccl(ncclResult_t result, std::string_view operation,
                std::source_location site = std::source_location::current());

/// "2.28.9"
std::string nccl_version_text(int code);

/// Why the library that this process has loaded will not do; empty when it will. It may be older than the
/// header.
std::string nccl_version_problem();

/// A communicator whose calls never block the host, with resources of its own.
ncclConfig_t nccl_config();

/// For the types that Communicator reduces.
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace amaxscope
