#include "collectives/mpi/mpi_handles.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// MPI's tag of these messages; those of Communicator::send have another.
constexpr int kSideMessage = 1;

/// Keeps the buffers until the process ends: nothing can be known of them once nobody tests their requests,
/// and MPI cannot cancel a collective. Named so that a leak checker can be told of it
/// (tests/support/lsan.supp).
[[gnu::noinline]] void keep_until_exit(std::vector<MpiRequest> requests) {
  static_cast<void>(new std::vector<MpiRequest>(std::move(requests)));
}

/// Open MPI hands the error of a collective's request to the handler of MPI_COMM_WORLD, whichever
/// communicator it is of, and that ends the job unless the program has said otherwise. While this lives,
/// errors are returned.
class WorldErrorsReturned {
 public:
  WorldErrorsReturned() {
    if (MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before_) != MPI_SUCCESS) return;
    changed_ = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS;
  }
  ~WorldErrorsReturned() {
    if (changed_) MPI_Comm_set_errhandler(MPI_COMM_WORLD, before_);
    if (before_ != MPI_ERRHANDLER_NULL) MPI_Errhandler_free(&before_);
  }
  WorldErrorsReturned(const WorldErrorsReturned&) = delete;
  WorldErrorsReturned& operator=(const WorldErrorsReturned&) = delete;

 private:
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
  bool changed_ = false;
};

/// MPI_Test that returns an error rather than ending the job. Looks first, which calls no handler, so that
/// the program's own is away for the end of the request only.
int test_request(MPI_Request& request, bool& done) {
  int flag = 0;
  done = false;
  const int looked = MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  if (looked != MPI_SUCCESS || flag == 0) return looked;
  const WorldErrorsReturned returned;
  const int tested = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  done = tested == MPI_SUCCESS && flag != 0;
  return tested;
}

bool completed(MpiRequest& started) {
  bool done = false;
  return test_request(started.request, done) == MPI_SUCCESS && done;
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

MpiSideChannel::~MpiSideChannel() {
  for (MpiRequest& request : sent_) comm_->abandon(std::move(request));
}

void MpiSideChannel::send(int to, std::string_view text) noexcept {
  std::erase_if(sent_, completed);
  text = text.substr(0, kLongest);
  auto buffer = std::make_shared<Tensor>(DType::kU8, Shape{static_cast<std::int64_t>(text.size())});
  std::ranges::copy(text, reinterpret_cast<char*>(buffer->mutable_view().data()));
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(buffer->view().data(), static_cast<int>(text.size()), MPI_BYTE, to, kSideMessage,
                comm_->get(), &request) != MPI_SUCCESS) {
    return;
  }
  sent_.push_back({request, {std::move(buffer)}});
}

std::optional<SideMessage> MpiSideChannel::receive() noexcept {
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kSideMessage, comm_->get(), &there, &status) != MPI_SUCCESS || there == 0) {
    return std::nullopt;
  }
  std::array<char, kLongest> text{};
  int length = 0;
  // All of it is here: a text is never longer, and was sent without waiting for this call.
  if (MPI_Recv(text.data(), static_cast<int>(text.size()), MPI_BYTE, status.MPI_SOURCE, kSideMessage,
               comm_->get(), &status) != MPI_SUCCESS ||
      MPI_Get_count(&status, MPI_BYTE, &length) != MPI_SUCCESS || length < 0) {
    return std::nullopt;
  }
  return SideMessage{status.MPI_SOURCE, std::string(text.data(), static_cast<std::size_t>(length))};
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
  bool done = false;
  check_mpi(test_request(started_.request, done), operation_);
  if (!done) return false;
  done_ = true;
  if (finish_) finish_();
  return true;
}

}  // namespace amaxscope
