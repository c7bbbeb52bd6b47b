// MPI's communicators and requests with the lifetimes that this library needs: nothing here waits when it is
// destroyed. Used by the thread that uses the communicator. Internal to the MPI backend.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// Throws Error(kInternal) with the operation and MPI's text unless the status is MPI_SUCCESS.
void check_mpi(int status, std::string_view operation);

[[nodiscard]] bool mpi_finalized();

/// A request, and the memory that MPI may read and write until it is complete.
struct MpiRequest {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<std::shared_ptr<Tensor>> buffers;
};

/// A communicator of our own, freed when its last user is gone, unless MPI was finalised before. With an
/// abandoned request on it that has not completed by then it is never freed: MPI_Comm_free would have to
/// wait.
class OwnedComm {
 public:
  /// Makes it return its errors.
  explicit OwnedComm(MPI_Comm comm);
  ~OwnedComm();
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  /// Nobody waits for this request any more.
  void abandon(MpiRequest request) { abandoned_.push_back(std::move(request)); }

 private:
  MPI_Comm comm_;
  std::vector<MpiRequest> abandoned_;
};

/// Messages with a tag of their own on a communicator.
class MpiSideChannel final : public SideChannel {
 public:
  explicit MpiSideChannel(std::shared_ptr<OwnedComm> comm) : comm_(std::move(comm)) {}
  ~MpiSideChannel() override;
  void send(int to, std::string_view text) noexcept override;
  std::optional<SideMessage> receive() noexcept override;

 private:
  std::shared_ptr<OwnedComm> comm_;
  std::vector<MpiRequest> sent_;  ///< and not known to be complete
};

/// A started collective on a communicator.
class MpiPending final : public PendingCollective {
 public:
  /// `operation` is a literal, for errors. `finish` (may be empty) runs once, when MPI is done with the
  /// buffers.
  MpiPending(std::shared_ptr<OwnedComm> comm, MpiRequest started, std::string_view operation,
             std::function<void()> finish);
  ~MpiPending() override;
  bool test() override;

 private:
  std::shared_ptr<OwnedComm> comm_;
  MpiRequest started_;
  std::string_view operation_;
  std::function<void()> finish_;
  bool done_ = false;
};

}  // namespace amaxscope
