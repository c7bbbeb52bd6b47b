#include "runtime/feature/schema.hpp"

namespace amaxscope {

const std::vector<KeySchema>& schedule_keys() {
  static const std::vector<KeySchema> kKeys = {
      {.name = "freq",
       .type = KeyType::kInteger,
       .default_text = "1",
       .doc = "Act at iterations that are a multiple of this number, counted from iteration 0.",
       .minimum = 1},
      {.name = "start_step",
       .type = KeyType::kInteger,
       .default_text = "0",
       .doc = "First iteration at which to act.",
       .minimum = 0},
      {.name = "end_step",
       .type = KeyType::kInteger,
       .default_text = "-1",
       .doc = "Last iteration at which to act, itself included; -1: no end.",
       .minimum = -1},
      {.name = "start_end_list",
       .type = KeyType::kIntervalList,
       .default_text = "",
       .doc = "List of [start, end] pairs, both included, that do not overlap; replaces start_step and "
              "end_step."},
  };
  return kKeys;
}

}  // namespace amaxscope
