// What of a feature survives a restart, tensor by tensor: state may be loaded before a tensor is registered
// or after it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/feature/feature.hpp"

namespace amaxscope {

class KeptState {
 public:
  using Words = std::vector<std::uint64_t>;

  /// From now on save() asks for the words of this key, and load() hands them back; what has been loaded for
  /// it already is handed back at once. A key that was given before gets new functions. What they refer to
  /// must outlive this object.
  void keep(const std::string& key, std::function<Words()> saved, std::function<void(const Words&)> restore);
  void save(FeatureState& state) const;
  /// Keys that nobody has given yet wait.
  void load(const FeatureState& state);
  /// What was loaded under a key, once.
  [[nodiscard]] std::optional<Words> take(const std::string& key);

 private:
  struct Owner {
    std::function<Words()> saved;
    std::function<void(const Words&)> restore;
  };
  std::map<std::string, Owner> owners_;
  FeatureState loaded_;
};

}  // namespace amaxscope
