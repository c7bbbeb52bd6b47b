#include "collectives/mpi/mpi_handles.hpp"

#include <array>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// Keeps the buffers until the process ends: nothing can be known of them once nobody tests their requests,
/// and MPI cannot cancel a collective. Named so that a leak checker can be told of it
/// (tests/support/lsan.supp).
[[gnu::noinline]] void keep_until_exit(std::vector<MpiRequest> requests) {
  static_cast<void>(new std::vector<MpiRequest>(std::move(requests)));
}

bool completed(MpiRequest& started) {
  int flag = 0;
  return MPI_Test(&started.request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag != 0;
}

}  // namespace

void check_mpi(int status, std::string_view operation) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(
      ErrorCode::kInternal,
      fmt::format("{}: {}", operation, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

bool mpi_finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag != 0;
}

OwnedComm::OwnedComm(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

OwnedComm::~OwnedComm() {
  const bool usable = !mpi_finalized();
  if (usable) std::erase_if(abandoned_, completed);
  if (!abandoned_.empty()) {
    keep_until_exit(std::move(abandoned_));
  } else if (usable) {
    MPI_Comm_free(&comm_);
  }
}

MpiPending::MpiPending(std::shared_ptr<OwnedComm> comm, MpiRequest started, std::string_view operation,
                       std::function<void()> finish)
    : comm_(std::move(comm)),
      started_(std::move(started)),
      operation_(operation),
      finish_(std::move(finish)) {}

MpiPending::~MpiPending() {
  if (!done_) comm_->abandon(std::move(started_));
}

bool MpiPending::test() {
  if (done_) return true;
  int flag = 0;
  check_mpi(MPI_Test(&started_.request, &flag, MPI_STATUS_IGNORE), operation_);
  if (flag == 0) return false;
  done_ = true;
  if (finish_) finish_();
  return true;
}

}  // namespace amaxscope
