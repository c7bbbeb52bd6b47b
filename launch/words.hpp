// Words of the command line that several commands take. Pure functions; throw Error(kUsage) naming the
// option, what was found and what is allowed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/quantizers/recipe.hpp"

namespace amaxscope::launch {

RecipeKind recipe_word(std::string_view option, const std::string& word);

/// "a,b,c" and repeated options alike.
std::vector<std::string> split_words(const std::vector<std::string>& values);

}  // namespace amaxscope::launch
