#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "collectives/callback_communicator.hpp"

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstCollectives = sizeof(amaxscope_collectives);

/// The program's functions; its context is released with the last user.
class Functions {
 public:
  explicit Functions(const amaxscope_collectives& functions) : functions_(functions) {}
  ~Functions() {
    if (functions_.release != nullptr) functions_.release(functions_.context);
  }
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;

  [[nodiscard]] const amaxscope_collectives* operator->() const noexcept { return &functions_; }
  [[nodiscard]] void* context() const noexcept { return functions_.context; }

 private:
  amaxscope_collectives functions_;
};

void require_success(int result, std::string_view function) {
  AMAXSCOPE_CHECK(result == 0, ErrorCode::kInternal, "the program's {} failed with {}", function, result);
}

amaxscope_dtype c_dtype(DType dtype) { return static_cast<amaxscope_dtype>(dtype); }
amaxscope_reduce_op c_op(ReduceOp op) { return static_cast<amaxscope_reduce_op>(op); }

class PendingCall final : public PendingCollective {
 public:
  PendingCall(std::shared_ptr<Functions> functions, std::shared_ptr<Tensor> io, ReduceOp op)
      : call_(call_to_keep_until_exit(std::move(functions), std::move(io))) {
    const Functions& own = *call_->functions;
    Tensor& tensor = *call_->io;
    require_success(own->start_all_reduce(own.context(), tensor.mutable_view().data(), tensor.numel(),
                                          c_dtype(tensor.dtype()), c_op(op), &call_->request),
                    "start_all_reduce");
    call_->started = true;
  }
  ~PendingCall() override {
    // Whatever the program started may still write there, with what it knows of the group.
    if (call_->started) static_cast<void>(call_.release());
  }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  bool test() override {
    if (!call_->started) return true;
    const Functions& own = *call_->functions;
    int done = 0;
    require_success(own->test(own.context(), call_->request, &done), "test");
    call_->started = done == 0;
    return done != 0;
  }

 private:
  struct Call {
    Call(std::shared_ptr<Functions> of, std::shared_ptr<Tensor> tensor)
        : functions(std::move(of)), io(std::move(tensor)) {}
    std::shared_ptr<Functions> functions;
    std::shared_ptr<Tensor> io;
    void* request = nullptr;
    bool started = false;  ///< and not done
  };
  /// Kept when it is abandoned, which is no leak; by this name the leak checker knows
  /// (tests/support/lsan.supp).
  [[gnu::noinline]] static std::unique_ptr<Call> call_to_keep_until_exit(std::shared_ptr<Functions> of,
                                                                         std::shared_ptr<Tensor> tensor) {
    return std::make_unique<Call>(std::move(of), std::move(tensor));
  }
  std::unique_ptr<Call> call_;
};

void require_complete(const amaxscope_collectives& given) {
  AMAXSCOPE_CHECK(
      given.ranks >= 1, ErrorCode::kUsage,
      "collectives.ranks is {}; a group has a rank at least (amaxscope_group_from_mpi: MPI is not "
      "initialised, or could not duplicate the communicator)",
      given.ranks);
  const auto require = [](bool is_there, std::string_view name) {
    AMAXSCOPE_CHECK(is_there, ErrorCode::kUsage, "collectives.{} is NULL", name);
  };
  require(given.all_reduce != nullptr, "all_reduce");
  require(given.all_gather != nullptr, "all_gather");
  require(given.broadcast != nullptr, "broadcast");
  require(given.barrier != nullptr, "barrier");
  require(given.abort != nullptr, "abort");
  require(given.split != nullptr, "split");
  AMAXSCOPE_CHECK((given.start_all_reduce == nullptr) == (given.test == nullptr), ErrorCode::kUsage,
                  "collectives.start_all_reduce and collectives.test go together: give both, or neither");
}

std::unique_ptr<CollectiveCallbacks> callbacks_of(const amaxscope_collectives& given);

std::unique_ptr<CollectiveCallbacks> split(const Functions& functions, int color, int key) {
  amaxscope_collectives part{};
  part.size = sizeof part;
  require_success(functions->split(functions.context(), color, key, &part), "split");
  return part.ranks == 0 ? nullptr : callbacks_of(part);
}

std::unique_ptr<CollectiveCallbacks> callbacks_of(const amaxscope_collectives& given) {
  const auto functions = std::make_shared<Functions>(given);
  require_complete(given);
  auto result = std::make_unique<CollectiveCallbacks>();
  result->rank = given.rank;
  result->size = given.ranks;
  if (given.world_ranks != nullptr) {
    result->world_ranks.assign(given.world_ranks, given.world_ranks + given.ranks);
  }
  result->all_reduce = [functions](void* io, std::int64_t count, DType dtype, ReduceOp op) {
    require_success((*functions)->all_reduce(functions->context(), io, count, c_dtype(dtype), c_op(op)),
                    "all_reduce");
  };
  result->all_gather = [functions](const void* in, void* out, std::size_t bytes) {
    require_success((*functions)->all_gather(functions->context(), in, out, bytes), "all_gather");
  };
  result->broadcast = [functions](void* io, std::size_t bytes, int root) {
    require_success((*functions)->broadcast(functions->context(), io, bytes, root), "broadcast");
  };
  result->barrier = [functions] { require_success((*functions)->barrier(functions->context()), "barrier"); };
  result->abort = [functions](int status, std::string_view reason) {
    (*functions)->abort(functions->context(), status, std::string(reason).c_str());
  };
  result->split = [functions](int color, int key) { return split(*functions, color, key); };
  if (given.start_all_reduce != nullptr) {
    result->start_all_reduce = [functions](std::shared_ptr<Tensor> io, ReduceOp op) {
      return std::make_unique<PendingCall>(functions, std::move(io), op);
    };
  }
  return result;
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_group_from_callbacks(const amaxscope_collectives* collectives,
                                                amaxscope_group** group) {
  return capi::call([&] {
    amaxscope_group*& result = capi::required(group, "group");
    const amaxscope_collectives given = capi::taken(collectives, capi::kFirstCollectives, "collectives");
    auto made = std::make_unique<amaxscope_group>();
    made->communicator = make_callback_communicator(std::move(*capi::callbacks_of(given)));
    result = made.release();
  });
}

amaxscope_status amaxscope_group_split(amaxscope_group* group, int color, int key, amaxscope_group** part) {
  return capi::call([&] {
    amaxscope_group*& result = capi::required(part, "part");
    auto made = std::make_unique<amaxscope_group>();
    made->communicator =
        capi::required(group, "group")
            .communicator->split(color, key,
                                 {.traffic = Traffic::kTrainer, .what = "a group of the program"});
    result = made->communicator == nullptr ? nullptr : made.release();
  });
}

void amaxscope_group_free(amaxscope_group* group) { delete group; }

}  // extern "C"
