// A session and its layers, kept from being used after it is closed or by two threads at once.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "capi/handles.hpp"
#include "python/native/errors.hpp"
#include "python/native/group.hpp"

namespace amaxscope::python {

/// A handle and what it borrows. Destroyed with the interpreter's lock.
struct OpenSession {
  explicit OpenSession(amaxscope_session* of) : handle(of) {}
  ~OpenSession() {
    const py::gil_scoped_release release;
    delete handle;
  }
  OpenSession(const OpenSession&) = delete;
  OpenSession& operator=(const OpenSession&) = delete;

  py::list groups;
  std::map<const amaxscope_layer*, py::object> weights;  ///< the owner of each layer's memory
  amaxscope_session* handle;
};

class Session {
 public:
  /// Takes the handle over. world: what it was opened with, or None.
  Session(amaxscope_session* handle, py::object world, std::shared_ptr<Raised> raised)
      : raised_(std::move(raised)), open_(std::make_shared<OpenSession>(handle)) {
    keep(std::move(world));
  }

  /// Runs work(handle) without the interpreter's lock. Throws Error(kUsage) when the session is closed, or
  /// another thread or a callback of this one is inside.
  template <class Work>
  void use(Work&& work) {
    const std::shared_ptr<OpenSession> session = open();
    AMAXSCOPE_CHECK(!busy_.exchange(true), ErrorCode::kUsage,
                    "the session is in use by another thread, or called from a callback of its own group; it "
                    "is used by one "
                    "thread at a time");
    struct Leave {
      std::atomic<bool>& busy;
      ~Leave() { busy = false; }
    } const leave{busy_};
    run(raised_.get(), [&] { return work(session->handle); });
  }
  /// For what only looks at the handle, as long as nobody is inside.
  [[nodiscard]] amaxscope_session& handle() const { return *open()->handle; }
  [[nodiscard]] bool is_open() const noexcept { return open_ != nullptr; }
  /// Keeps a group as long as the session.
  void keep(py::object group) { open()->groups.append(std::move(group)); }
  /// Keeps the memory of a layer's weight as long as the session, or until there is another.
  void keep_weight(const amaxscope_layer* layer, py::object owner) {
    open()->weights[layer] = std::move(owner);
  }

  /// Flushes, marks the run as closed, and lets go of the session.
  void close();
  /// The run stays marked as one that was not closed.
  void abandon() { open_.reset(); }

 private:
  [[nodiscard]] std::shared_ptr<OpenSession> open() const {
    AMAXSCOPE_CHECK(open_ != nullptr, ErrorCode::kUsage, "the session is closed");
    return open_;
  }

  std::shared_ptr<Raised> raised_;
  std::shared_ptr<OpenSession> open_;  ///< a call that runs holds it, too
  std::atomic<bool> busy_ = false;
};

void add_session(py::module_& module);
void add_layer(py::module_& module);

}  // namespace amaxscope::python
