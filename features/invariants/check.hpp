// One equality that InvariantGuard watches over. Each lives in a file of its own beside this one.
// Checks are local, or compare ranks through accumulators that travel with the statistics of a step; none of
// them communicates by itself, writes to a tensor or throws for what it finds. Used by one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/feature/feature.hpp"

namespace amaxscope {

class InvariantCheck {
 public:
  explicit InvariantCheck(std::string_view id) : id_(id) {}
  virtual ~InvariantCheck() = default;
  InvariantCheck(const InvariantCheck&) = delete;
  InvariantCheck& operator=(const InvariantCheck&) = delete;

  [[nodiscard]] const std::string& id() const noexcept { return id_; }
  void attach(std::function<void(Finding)> report) { report_ = std::move(report); }
  /// How many comparisons were made since the last call.
  [[nodiscard]] std::uint64_t take_count() noexcept { return std::exchange(count_, 0); }

  virtual void register_session(const Schedule&, Registration&) {}
  virtual void register_tensor(const InspectedTensor&, const Schedule&, Registration&) {}
  virtual void inspect(const InspectContext&) {}
  virtual void inspect_reuse(const InspectContext&) {}
  virtual void inspect_scalar(std::string_view, double) {}
  virtual void save_state(FeatureState&) const {}
  virtual void load_state(const FeatureState&) {}

 protected:
  void count() noexcept { ++count_; }
  /// Reports what this rank found; the first time for each layer and tensor only.
  void fail(const InspectContext& context, std::string what, std::map<std::string, std::string> details = {});

 private:
  std::string id_;
  std::function<void(Finding)> report_;
  std::uint64_t count_ = 0;
  std::set<std::pair<std::string, std::string>> failed_;
};

// sample: how many elements (I5: blocks) of a tensor a sampled comparison looks at.
std::unique_ptr<InvariantCheck> make_replica_check();                               ///< I1
std::unique_ptr<InvariantCheck> make_scale_check();                                 ///< I2
std::unique_ptr<InvariantCheck> make_copies_check(std::size_t sample);              ///< I3
std::unique_ptr<InvariantCheck> make_recompute_check();                             ///< I4
std::unique_ptr<InvariantCheck> make_bounds_check(std::size_t sample);              ///< I5
std::unique_ptr<InvariantCheck> make_history_check();                               ///< I6
std::unique_ptr<InvariantCheck> make_master_check(std::size_t sample);              ///< I7
std::unique_ptr<InvariantCheck> make_scalar_check(std::vector<std::string> names);  ///< I8, for these names
std::unique_ptr<InvariantCheck> make_restart_check();                               ///< I9

}  // namespace amaxscope
