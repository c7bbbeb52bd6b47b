#include "collectives/mpi/mpi_communicator.hpp"

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "collectives/last_line.hpp"
#include "collectives/mpi/mpi_handles.hpp"
#include "collectives/rank_order_reduction.hpp"
#include "collectives/staged.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

/// MPI's tag of every message: those between two ranks are matched by their order.
constexpr int kMessage = 0;

int mpi_count(std::int64_t count) {
  AMAXSCOPE_CHECK(count <= std::numeric_limits<int>::max(), ErrorCode::kTensor,
                  "{} elements are more than one MPI call takes", count);
  return static_cast<int>(count);
}

/// MPI_DATATYPE_NULL for the 16-bit floats, which MPI does not know; the other types are refused before.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kU32:
      return MPI_UINT32_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kU64:
      return MPI_UINT64_T;
    case DType::kI64:
      return MPI_INT64_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

/// `parts`: the ranks' values one after the other. In fp32, in the order of the ranks, rounded once.
void reduce_gathered(const TensorView& parts, int ranks, const MutableTensorView& out, ReduceOp op) {
  if (out.numel() == 0) return;
  reduce_parts_in_order(parts.data(), ranks, out.data(), out.numel(), out.dtype(), op);
}

/// Takes the communicator over. Collective over it. `staging` may be null.
std::unique_ptr<Communicator> communicator_over(MPI_Comm comm, int own_world_rank,
                                                std::shared_ptr<TrafficCounters> counters,
                                                std::shared_ptr<HostStaging> staging);

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<OwnedComm> comm, std::vector<int> world_ranks,
                  std::shared_ptr<TrafficCounters> counters)
      : Communicator(std::move(world_ranks), std::move(counters)), comm_(std::move(comm)) {
    check_mpi(MPI_Comm_rank(comm_->get(), &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_->get(), &size_), "MPI_Comm_size");
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  [[nodiscard]] std::unique_ptr<SideChannel> side_channel() override {
    return std::make_unique<MpiSideChannel>(comm_);
  }

  [[noreturn]] void abort(int status, std::string_view reason) override {
    write_last_line(fmt::format("[rank {}] {}", world_ranks()[static_cast<std::size_t>(rank_)], reason));
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();  // MPI_Abort is not promised to end this process
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    const MPI_Datatype type = mpi_type(io.dtype());
    if (type == MPI_DATATYPE_NULL) return all_reduce_gathered(io, op);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, io.data(), mpi_count(io.numel()), type, mpi_op(op), comm_->get()),
              "MPI_Allreduce");
  }

  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    const MPI_Datatype type = mpi_type(io->dtype());
    MPI_Request request = MPI_REQUEST_NULL;
    if (type != MPI_DATATYPE_NULL) {
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, io->mutable_view().data(), mpi_count(io->numel()), type,
                               mpi_op(op), comm_->get(), &request),
                "MPI_Iallreduce");
      return std::make_unique<MpiPending>(comm_, MpiRequest{request, {std::move(io)}}, "MPI_Iallreduce",
                                          nullptr);
    }
    const auto parts = std::make_shared<Tensor>(io->dtype(), Shape{size_, io->numel()});
    const int bytes = mpi_count(static_cast<std::int64_t>(io->bytes()));
    check_mpi(MPI_Iallgather(io->view().data(), bytes, MPI_BYTE, parts->mutable_view().data(), bytes,
                             MPI_BYTE, comm_->get(), &request),
              "MPI_Iallgather");
    return std::make_unique<MpiPending>(
        comm_, MpiRequest{request, {io, parts}}, "MPI_Iallgather",
        [io, parts, op, ranks = size_] { reduce_gathered(*parts, ranks, *io, op); });
  }

  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    const int bytes = mpi_count(static_cast<std::int64_t>(in.bytes()));
    check_mpi(MPI_Allgather(in.data(), bytes, MPI_BYTE, out.data(), bytes, MPI_BYTE, comm_->get()),
              "MPI_Allgather");
  }

  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    const MPI_Datatype type = mpi_type(in.dtype());
    if (type == MPI_DATATYPE_NULL) return reduce_scatter_gathered(in, out, op);
    check_mpi(MPI_Reduce_scatter_block(in.data(), out.data(), mpi_count(out.numel()), type, mpi_op(op),
                                       comm_->get()),
              "MPI_Reduce_scatter_block");
  }

  void do_broadcast(const MutableTensorView& io, int root) override {
    check_mpi(
        MPI_Bcast(io.data(), mpi_count(static_cast<std::int64_t>(io.bytes())), MPI_BYTE, root, comm_->get()),
        "MPI_Bcast");
  }

  void do_send(const TensorView& in, int to) override {
    check_mpi(MPI_Send(in.data(), mpi_count(static_cast<std::int64_t>(in.bytes())), MPI_BYTE, to, kMessage,
                       comm_->get()),
              "MPI_Send");
  }

  void do_receive(const MutableTensorView& out, int from) override {
    MPI_Status status;
    const int bytes = mpi_count(static_cast<std::int64_t>(out.bytes()));
    check_mpi(MPI_Recv(out.data(), bytes, MPI_BYTE, from, kMessage, comm_->get(), &status), "MPI_Recv");
    int received = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
    AMAXSCOPE_CHECK(received == bytes, ErrorCode::kInternal, "MPI_Recv: {} of {} bytes came from rank {}",
                    received, bytes, world_ranks()[static_cast<std::size_t>(from)]);
  }

  void do_barrier() override { check_mpi(MPI_Barrier(comm_->get()), "MPI_Barrier"); }

  std::unique_ptr<Communicator> do_split(int color, int key) override {
    MPI_Comm child = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_->get(), color < 0 ? MPI_UNDEFINED : color, key, &child), "MPI_Comm_split");
    if (child == MPI_COMM_NULL) return nullptr;
    return communicator_over(child, world_ranks()[static_cast<std::size_t>(rank_)], shared_counters(),
                             staging());
  }

  [[nodiscard]] virtual std::shared_ptr<HostStaging> staging() const { return nullptr; }

 private:
  // The 16-bit floats, which MPI does not know: each rank gets everybody's values and adds them itself, which
  // takes the memory of all ranks' inputs and does not depend on the order that MPI would choose.
  void all_reduce_gathered(const MutableTensorView& io, ReduceOp op) {
    Tensor parts(io.dtype(), {size_, io.numel()});
    do_all_gather(io, parts);
    reduce_gathered(parts, size_, io, op);
  }

  void reduce_scatter_gathered(const TensorView& in, const MutableTensorView& out, ReduceOp op) {
    Tensor parts(out.dtype(), {size_, out.numel()});
    const int bytes = mpi_count(static_cast<std::int64_t>(out.bytes()));
    check_mpi(
        MPI_Alltoall(in.data(), bytes, MPI_BYTE, parts.mutable_view().data(), bytes, MPI_BYTE, comm_->get()),
        "MPI_Alltoall");
    reduce_gathered(parts, size_, out, op);
  }

  std::shared_ptr<OwnedComm> comm_;
  int rank_ = 0;
  int size_ = 1;
};

std::unique_ptr<Communicator> communicator_over(MPI_Comm comm, int own_world_rank,
                                                std::shared_ptr<TrafficCounters> counters,
                                                std::shared_ptr<HostStaging> staging) {
  auto owned = std::make_shared<OwnedComm>(comm);
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> world_ranks(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&own_world_rank, 1, MPI_INT, world_ranks.data(), 1, MPI_INT, comm),
            "MPI_Allgather");
  if (staging == nullptr) {
    return std::make_unique<MpiCommunicator>(std::move(owned), std::move(world_ranks), std::move(counters));
  }
  return std::make_unique<Staged<MpiCommunicator>>(std::move(staging), std::move(owned),
                                                   std::move(world_ranks), std::move(counters));
}

}  // namespace

MpiEnvironment::MpiEnvironment(int* argc, char*** argv) {
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
}

MpiEnvironment::~MpiEnvironment() {
  if (!mpi_finalized()) MPI_Finalize();
}

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, std::shared_ptr<HostStaging> staging) {
  int initialized = 0;
  AMAXSCOPE_CHECK(MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 && !mpi_finalized(),
                  ErrorCode::kUsage, "MPI is not initialised; call MPI_Init before making a communicator");
  int own = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &own), "MPI_Comm_rank");
  MPI_Comm duplicate = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &duplicate), "MPI_Comm_dup");
  return communicator_over(duplicate, own, std::make_shared<TrafficCounters>(), std::move(staging));
}

}  // namespace amaxscope
