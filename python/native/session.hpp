// A session and its layers, kept from being used after it is closed or by two threads at once.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <utility>

#include "capi/handles.hpp"
#include "python/native/errors.hpp"
#include "python/native/group.hpp"

namespace amaxscope::python {

class Session {
 public:
  /// Takes the handle over. world: what it was opened with, or None.
  Session(amaxscope_session* handle, py::object world, std::shared_ptr<Raised> raised)
      : raised_(std::move(raised)), handle_(handle) {
    keep(std::move(world));
  }
  ~Session() { abandon(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs work(handle) without the interpreter's lock. Throws Error(kUsage) when the session is closed, or
  /// another thread or a callback of this one is inside.
  template <class Work>
  void use(Work&& work) {
    AMAXSCOPE_CHECK(handle_ != nullptr, ErrorCode::kUsage, "the session is closed");
    AMAXSCOPE_CHECK(!busy_.exchange(true), ErrorCode::kUsage,
                    "the session is in use by another thread, or called from a callback of its own group; it "
                    "is used by one "
                    "thread at a time");
    struct Leave {
      std::atomic<bool>& busy;
      ~Leave() { busy = false; }
    } const leave{busy_};
    run(raised_.get(), [&] { return work(handle_); });
  }
  /// For what only looks at the handle, as long as nobody is inside.
  [[nodiscard]] amaxscope_session& handle() const {
    AMAXSCOPE_CHECK(handle_ != nullptr, ErrorCode::kUsage, "the session is closed");
    return *handle_;
  }
  [[nodiscard]] bool is_open() const noexcept { return handle_ != nullptr; }
  /// Kept as long as the session.
  void keep(py::object object) { kept_.append(std::move(object)); }

  void close();
  /// The run stays marked as one that was not closed.
  void abandon();

 private:
  std::shared_ptr<Raised> raised_;
  py::list kept_;  ///< groups, which the session borrows
  amaxscope_session* handle_;
  std::atomic<bool> busy_ = false;
};

void add_session(py::module_& module);
void add_layer(py::module_& module);

}  // namespace amaxscope::python
