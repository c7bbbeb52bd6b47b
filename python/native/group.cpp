#include "python/native/group.hpp"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <utility>

#include "collectives/callback_communicator.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

/// An object of Python that may be let go of by any thread.
using Kept = std::shared_ptr<py::object>;
Kept keep(py::object object) {
  return {new py::object(std::move(object)), [](py::object* own) {
            if (Py_IsInitialized() == 0) {
              static_cast<void>(own->release());  // the interpreter has ended, and its objects with it
            } else {
              const py::gil_scoped_acquire lock;
              *own = py::object();
            }
            delete own;
          }};
}

/// The methods of one rank's group, called with the interpreter's lock; what they raise is kept and becomes
/// an Error.
struct Methods {
  Kept object;
  std::shared_ptr<Raised> raised;

  template <class Work>
  auto call(std::string_view method, Work&& work) const {
    const py::gil_scoped_acquire lock;
    try {
      return work(object->attr(method.data()));
    } catch (const py::builtin_exception& error) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("{} of the program's group failed: {}", method, error.what()));
    } catch (py::error_already_set& error) {
      const std::string text =
          fmt::format("{}: {}", py::str(error.type().attr("__name__")).cast<std::string>(),
                      py::str(error.value()).cast<std::string>());
      raised->keep(error);
      throw Error(ErrorCode::kInternal, fmt::format("{} of the program's group failed: {}", method, text));
    }
  }
};

struct BufferType {
  const char* format;
  py::ssize_t bytes;
};
BufferType buffer_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {"d", 8};
    case DType::kF32:
      return {"f", 4};
    case DType::kU32:
      return {"I", 4};
    case DType::kI32:
      return {"i", 4};
    case DType::kU64:
      return {"Q", 8};
    case DType::kI64:
      return {"q", 8};
    default:
      throw Error(ErrorCode::kTensor, fmt::format("a group in Python does not reduce {}", to_string(dtype)));
  }
}

const char* op_word(ReduceOp op) {
  return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMin ? "min" : "max";
}

/// Memory of the library's for one call: a view that a method has kept would point to nothing after it.
class Lent {
 public:
  Lent(const void* data, BufferType type, std::int64_t count, bool readonly)
      : view_(py::memoryview::from_buffer(const_cast<void*>(data), type.bytes, type.format, {count},
                                          {type.bytes}, readonly)) {}
  [[nodiscard]] const py::memoryview& view() const { return view_; }
  /// Raises BufferError when an array or a slice still looks there.
  void take_back() const {
    const auto* const own = reinterpret_cast<const PyMemoryViewObject*>(view_.ptr());
    if (own->mbuf->exports > 1)
      throw py::buffer_error("a part of the buffer is still in use; it is lent for the call only");
    static_cast<void>(view_.attr("release")());
  }

 private:
  py::memoryview view_;
};
Lent lend_bytes(void* data, std::size_t bytes) {
  return {data, {"B", 1}, static_cast<std::int64_t>(bytes), false};
}
Lent lend_bytes(const void* data, std::size_t bytes) {
  return {data, {"B", 1}, static_cast<std::int64_t>(bytes), true};
}

class PendingMethod final : public PendingCollective {
 public:
  PendingMethod(const Methods& methods, std::shared_ptr<Tensor> io, ReduceOp op)
      : call_(call_to_keep_until_exit(methods.raised, std::move(io))) {
    const Tensor& tensor = *call_->io;
    methods.call("start_all_reduce", [&](const py::object& start) {
      const Lent lent(tensor.view().data(), buffer_type(tensor.dtype()), tensor.numel(), false);
      call_->request.object = keep(start(lent.view(), word_of(tensor.dtype()), op_word(op)));
    });
    call_->started = true;
  }
  ~PendingMethod() override {
    if (call_->started) static_cast<void>(call_.release());  // what was started may still write there
  }
  PendingMethod(const PendingMethod&) = delete;
  PendingMethod& operator=(const PendingMethod&) = delete;

  bool test() override {
    if (!call_->started) return true;
    const bool done = call_->request.call("test", [](const py::object& test) { return test().cast<bool>(); });
    call_->started = !done;
    return done;
  }

 private:
  struct Call {
    Methods request;
    std::shared_ptr<Tensor> io;
    bool started = false;  ///< and not done
  };
  /// Kept when it is abandoned, which is no leak; by this name the leak checker knows
  /// (tests/support/lsan.supp).
  [[gnu::noinline]] static std::unique_ptr<Call> call_to_keep_until_exit(std::shared_ptr<Raised> raised,
                                                                         std::shared_ptr<Tensor> io) {
    return std::make_unique<Call>(Call{
        .request = {.object = nullptr, .raised = std::move(raised)}, .io = std::move(io), .started = false});
  }
  std::unique_ptr<Call> call_;
};

std::unique_ptr<CollectiveCallbacks> callbacks_of(py::object group, std::shared_ptr<Raised> raised) {
  for (const char* method : {"all_reduce", "all_gather", "broadcast", "barrier", "split", "abort"}) {
    AMAXSCOPE_CHECK(py::hasattr(group, method), ErrorCode::kUsage,
                    "the group has no {}(); docs/python.md lists what a group of callbacks needs", method);
  }
  auto result = std::make_unique<CollectiveCallbacks>();
  result->rank = group.attr("rank").cast<int>();
  result->size = group.attr("size").cast<int>();
  if (py::hasattr(group, "world_ranks"))
    result->world_ranks = group.attr("world_ranks").cast<std::vector<int>>();
  const bool starts = py::hasattr(group, "start_all_reduce") && !group.attr("start_all_reduce").is_none();
  const Methods methods{.object = keep(std::move(group)), .raised = std::move(raised)};
  result->all_reduce = [methods](void* io, std::int64_t count, DType dtype, ReduceOp op) {
    methods.call("all_reduce", [&](const py::object& method) {
      const Lent lent(io, buffer_type(dtype), count, false);
      method(lent.view(), word_of(dtype), op_word(op));
      lent.take_back();
    });
  };
  result->all_gather = [methods, size = result->size](const void* in, void* out, std::size_t bytes) {
    methods.call("all_gather", [&](const py::object& method) {
      const Lent part = lend_bytes(in, bytes);
      const Lent whole = lend_bytes(out, bytes * static_cast<std::size_t>(size));
      method(part.view(), whole.view());
      part.take_back();
      whole.take_back();
    });
  };
  result->broadcast = [methods](void* io, std::size_t bytes, int root) {
    methods.call("broadcast", [&](const py::object& method) {
      const Lent lent = lend_bytes(io, bytes);
      method(lent.view(), root);
      lent.take_back();
    });
  };
  result->barrier = [methods] { methods.call("barrier", [](const py::object& method) { method(); }); };
  result->abort = [methods](int status, std::string_view reason) {
    methods.call("abort", [&](const py::object& method) { method(status, reason); });
  };
  if (starts) {
    result->start_all_reduce = [methods](std::shared_ptr<Tensor> io, ReduceOp op) {
      return std::make_unique<PendingMethod>(methods, std::move(io), op);
    };
  }
  result->split = [methods](int color, int key) {
    return methods.call("split", [&](const py::object& method) {
      py::object part = method(color, key);
      return part.is_none() ? nullptr : callbacks_of(std::move(part), methods.raised);
    });
  };
  return result;
}

std::unique_ptr<Group> group_of(py::object object) {
  auto group = std::make_unique<Group>();
  group->raised = std::make_shared<Raised>();
  group->handle = std::make_unique<amaxscope_group>();
  group->handle->communicator =
      make_callback_communicator(std::move(*callbacks_of(std::move(object), group->raised)));
  return group;
}

std::unique_ptr<Group> split(const Group& group, int color, int key) {
  auto part = std::make_unique<Group>();
  part->raised = group.raised;
  amaxscope_group* handle = nullptr;
  run(group.raised.get(), [&] { return amaxscope_group_split(group.handle.get(), color, key, &handle); });
  if (handle == nullptr) return nullptr;
  part->handle.reset(handle);
  return part;
}

}  // namespace

void add_group(py::module_& module) {
  py::class_<Group>(module, "Group")
      .def(py::init(&group_of), py::arg("collectives"))
      .def_property_readonly("rank", [](const Group& group) { return group.handle->communicator->rank(); })
      .def_property_readonly("size", [](const Group& group) { return group.handle->communicator->size(); })
      .def_property_readonly("world_ranks",
                             [](const Group& group) { return group.handle->communicator->world_ranks(); })
      .def("split", &split, py::arg("color"), py::arg("key"))
      .def("calls", [](const Group& group) {
        const TrafficCounters& counters = group.handle->communicator->counters();
        py::dict calls;
        for (const Traffic traffic : {Traffic::kTrainer, Traffic::kRecipe, Traffic::kDebug}) {
          calls[py::str(to_string(traffic).data())] = counters.calls(traffic);
        }
        return calls;
      });
}

}  // namespace amaxscope::python
