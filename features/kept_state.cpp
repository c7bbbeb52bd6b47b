#include "features/kept_state.hpp"

#include <utility>

namespace amaxscope {

void KeptState::keep(const std::string& key, std::function<Words()> saved,
                     std::function<void(const Words&)> restore) {
  const Owner& owner =
      owners_.insert_or_assign(key, Owner{std::move(saved), std::move(restore)}).first->second;
  if (const std::optional<Words> words = take(key)) owner.restore(*words);
}

void KeptState::save(FeatureState& state) const {
  for (const auto& [key, owner] : owners_) state.insert_or_assign(key, owner.saved());
}

void KeptState::load(const FeatureState& state) {
  loaded_ = state;
  for (const auto& [key, owner] : owners_) {
    if (const std::optional<Words> words = take(key)) owner.restore(*words);
  }
}

std::optional<KeptState::Words> KeptState::take(const std::string& key) {
  auto node = loaded_.extract(key);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

}  // namespace amaxscope
