// Layer patterns and layer names: the first line is the pattern, the rest the name.
#include "runtime/config/layer_selector.hpp"
#include "runtime/names.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  return {
      R"(decoder\.layers\.(1|10)\.mlp)"
      "\ndecoder.layers.10.mlp.linear_fc1",
      R"(^(?P<name>[a-z]+)(?P=name)?\d{2,}\b(?!x)(?<=y)\Z|[^[\]]\u0041)"
      "\naa11",
      "(a+)+$\n" + std::string(64, 'a') + "!",
      "(a|a)*(b|b)*$\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
      "(?i)A.b\\\n\xff\xfe",
      "(?<n>a)\\g<n>(?#x)\\N{DIGIT ONE}\na",
      "a{,3}b{2}{3}\naab",
      "\n",
  };
}

void read(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  const std::string pattern(bytes.substr(0, end));
  const std::string_view name = end == std::string_view::npos ? "" : bytes.substr(end + 1);
  may_refuse([&] {
    const Pattern compiled(pattern);
    may_refuse([&] { (void)compiled.found_in(name); });
    may_refuse([&] { (void)compiled.cuts_number_in(name); });
  });
}

}  // namespace amaxscope::fuzz
