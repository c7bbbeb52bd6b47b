// What several recipes would make of one tensor, in one pass over memory. Pure but for the collectives of the
// recipes' scales.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/what_if.hpp"

namespace amaxscope {

struct WhatIfRequest {
  WhatIf* what_if;
  Usage wanted;
};

/// Rows that are read for all recipes before the next ones are: whole blocks in both directions, and as many
/// elements as sums are made of together. About 1 MiB, which is enough for several threads and stays in the
/// caches with its codes; more where 128 rows are larger.
std::int64_t rows_at_once(const TensorView& x);

/// As WhatIf::measure() of each, without rounding, with the same bits: results in the order of the requests.
/// context.x is on the host and has elements; all requests go by rows. It is read once for all of them, and
/// once before for an amax that nobody has computed yet. Blocks for one MAX over tp for each recipe with the
/// scale of a whole tensor.
std::vector<WhatIf::Result> measure_at_once(const InspectContext& context,
                                            std::span<const WhatIfRequest> requests);

}  // namespace amaxscope
