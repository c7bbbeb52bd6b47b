#include "launch/words.hpp"

#include <optional>
#include <sstream>

#include "core/error.hpp"
#include "runtime/config/diagnostics.hpp"

namespace amaxscope::launch {

RecipeKind recipe_word(std::string_view option, const std::string& word) {
  const std::optional<RecipeKind> recipe = parse_recipe(word);
  AMAXSCOPE_CHECK(recipe.has_value(), ErrorCode::kUsage,
                  "{} {}: unknown; allowed: none, delayed, current, mxfp8, block, nvfp4{}", option, word,
                  suggestion(word, {"none", "delayed", "current", "mxfp8", "block", "nvfp4"}));
  return *recipe;
}

std::vector<std::string> split_words(const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& value : values) {
    std::istringstream text(value);
    for (std::string word; std::getline(text, word, ',');) {
      if (!word.empty()) words.push_back(std::move(word));
    }
  }
  return words;
}

}  // namespace amaxscope::launch
