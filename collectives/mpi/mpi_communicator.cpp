#include "collectives/mpi/mpi_communicator.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/rank_order_reduction.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

void check(int status, std::string_view operation) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(ErrorCode::kInternal, fmt::format("{}: {}", operation, std::string_view(text.data(), length)));
}

bool finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag != 0;
}

int mpi_count(std::int64_t count) {
  AMAXSCOPE_CHECK(count <= std::numeric_limits<int>::max(), ErrorCode::kTensor,
                  "{} elements are more than one MPI collective takes", count);
  return static_cast<int>(count);
}

/// No value for the 16-bit floats, which MPI does not know.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return MPI_DOUBLE;
    case DType::kF32: return MPI_FLOAT;
    case DType::kU32: return MPI_UINT32_T;
    case DType::kI32: return MPI_INT32_T;
    case DType::kU64: return MPI_UINT64_T;
    case DType::kI64: return MPI_INT64_T;
    case DType::kF16:
    case DType::kBF16: return MPI_DATATYPE_NULL;
    default: break;
  }
  throw Error(ErrorCode::kTensor, fmt::format("{} tensors cannot be reduced over ranks; allowed: f64 f32 f16 bf16 "
                                              "u32 i32 u64 i64",
                                              to_string(dtype)));
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
  }
  return MPI_OP_NULL;
}

/// The duplicate of a communicator. Freed when the last user is gone, unless a request on it was abandoned: that
/// request may still complete, and freeing would wait for it.
class OwnedComm {
 public:
  explicit OwnedComm(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~OwnedComm() {
    if (!abandoned_ && !finalized()) MPI_Comm_free(&comm_);
  }
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  void set_abandoned() noexcept { abandoned_ = true; }

 private:
  MPI_Comm comm_;
  bool abandoned_ = false;
};

class MpiPending final : public PendingCollective {
 public:
  MpiPending(std::shared_ptr<OwnedComm> comm, std::shared_ptr<Tensor> io, ReduceOp op)
      : comm_(std::move(comm)), io_(std::move(io)) {
    check(MPI_Iallreduce(MPI_IN_PLACE, io_->mutable_view().data(), mpi_count(io_->numel()), mpi_type(io_->dtype()),
                         mpi_op(op), comm_->get(), &request_),
          "MPI_Iallreduce");
  }
  ~MpiPending() override {
    if (done_ || finalized()) return;
    comm_->set_abandoned();
    // MPI may write to the buffer for as long as the process lives, so it is given to nobody.
    static_cast<void>(new std::shared_ptr<Tensor>(std::move(io_)));
  }
  bool test() override {
    if (done_) return true;
    int flag = 0;
    check(MPI_Test(&request_, &flag, MPI_STATUS_IGNORE), "MPI_Iallreduce");
    done_ = flag != 0;
    return done_;
  }

 private:
  std::shared_ptr<OwnedComm> comm_;
  std::shared_ptr<Tensor> io_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool done_ = false;
};

class CompletedCollective final : public PendingCollective {
 public:
  bool test() override { return true; }
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<OwnedComm> comm, std::vector<int> world_ranks,
                  std::shared_ptr<TrafficCounters> counters)
      : Communicator(std::move(world_ranks), std::move(counters)), comm_(std::move(comm)) {
    check(MPI_Comm_rank(comm_->get(), &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_->get(), &size_), "MPI_Comm_size");
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  [[noreturn]] void abort(int status, std::string_view reason) override {
    std::fprintf(stderr, "[rank %d] %.*s\n", world_ranks()[static_cast<std::size_t>(rank_)],
                 static_cast<int>(reason.size()), reason.data());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();  // MPI_Abort is not promised to end this process
  }

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override {
    const MPI_Datatype type = mpi_type(io.dtype());
    if (type == MPI_DATATYPE_NULL) return all_reduce_gathered(io, op);
    check(MPI_Allreduce(MPI_IN_PLACE, io.data(), mpi_count(io.numel()), type, mpi_op(op), comm_->get()),
          "MPI_Allreduce");
  }

  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override {
    if (mpi_type(io->dtype()) != MPI_DATATYPE_NULL) return std::make_unique<MpiPending>(comm_, std::move(io), op);
    do_all_reduce(*io, op);
    return std::make_unique<CompletedCollective>();
  }

  void do_all_gather(const TensorView& in, const MutableTensorView& out) override {
    const int bytes = mpi_count(static_cast<std::int64_t>(in.bytes()));
    check(MPI_Allgather(in.data(), bytes, MPI_BYTE, out.data(), bytes, MPI_BYTE, comm_->get()), "MPI_Allgather");
  }

  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override {
    const MPI_Datatype type = mpi_type(in.dtype());
    if (type == MPI_DATATYPE_NULL) {
      Tensor whole(in.dtype(), in.shape());
      if (in.bytes() != 0) std::memcpy(whole.mutable_view().data(), in.data(), in.bytes());
      all_reduce_gathered(whole, op);
      if (out.bytes() == 0) return;
      const auto* first = static_cast<const std::byte*>(whole.view().data());
      std::memcpy(out.data(), first + static_cast<std::size_t>(rank_) * out.bytes(), out.bytes());
      return;
    }
    check(MPI_Reduce_scatter_block(in.data(), out.data(), mpi_count(out.numel()), type, mpi_op(op), comm_->get()),
          "MPI_Reduce_scatter_block");
  }

  void do_broadcast(const MutableTensorView& io, int root) override {
    check(MPI_Bcast(io.data(), mpi_count(static_cast<std::int64_t>(io.bytes())), MPI_BYTE, root, comm_->get()),
          "MPI_Bcast");
  }

  void do_barrier() override { check(MPI_Barrier(comm_->get()), "MPI_Barrier"); }

  std::unique_ptr<Communicator> do_split(int color, int key) override {
    MPI_Comm child = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_->get(), color < 0 ? MPI_UNDEFINED : color, key, &child), "MPI_Comm_split");
    if (child == MPI_COMM_NULL) return nullptr;
    auto owned = std::make_shared<OwnedComm>(child);
    int size = 0;
    check(MPI_Comm_size(child, &size), "MPI_Comm_size");
    std::vector<int> ranks(static_cast<std::size_t>(size));
    const int own = world_ranks()[static_cast<std::size_t>(rank_)];
    check(MPI_Allgather(&own, 1, MPI_INT, ranks.data(), 1, MPI_INT, child), "MPI_Allgather");
    return std::make_unique<MpiCommunicator>(std::move(owned), std::move(ranks), shared_counters());
  }

 private:
  /// The 16-bit floats: everybody's values to everybody, summed in fp32 in rank order and rounded once.
  void all_reduce_gathered(const MutableTensorView& io, ReduceOp op) {
    Tensor all(io.dtype(), {size_, io.numel()});
    do_all_gather(io, all);
    std::vector<const void*> inputs;
    for (int rank = 0; rank < size_; ++rank) {
      inputs.push_back(static_cast<const std::byte*>(all.view().data()) + static_cast<std::size_t>(rank) * io.bytes());
    }
    if (io.numel() != 0) reduce_in_order(inputs, io.data(), io.numel(), io.dtype(), op);
  }

  std::shared_ptr<OwnedComm> comm_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

MpiEnvironment::MpiEnvironment(int* argc, char*** argv) {
  int provided = 0;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
}

MpiEnvironment::~MpiEnvironment() {
  if (!finalized()) MPI_Finalize();
}

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent) {
  int initialized = 0;
  AMAXSCOPE_CHECK(MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 && !finalized(), ErrorCode::kUsage,
                  "MPI is not initialised; call MPI_Init before making a communicator");
  MPI_Comm duplicate = MPI_COMM_NULL;
  check(MPI_Comm_dup(parent, &duplicate), "MPI_Comm_dup");
  auto owned = std::make_shared<OwnedComm>(duplicate);
  int size = 0;
  check(MPI_Comm_size(duplicate, &size), "MPI_Comm_size");
  int own = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &own), "MPI_Comm_rank");
  std::vector<int> world_ranks(static_cast<std::size_t>(size));
  check(MPI_Allgather(&own, 1, MPI_INT, world_ranks.data(), 1, MPI_INT, duplicate), "MPI_Allgather");
  return std::make_unique<MpiCommunicator>(std::move(owned), std::move(world_ranks),
                                           std::make_shared<TrafficCounters>());
}

}  // namespace amaxscope
