#include "features/invariants/check.hpp"

namespace amaxscope {

void InvariantCheck::fail(const InspectContext& context, std::string what,
                          std::map<std::string, std::string> details) {
  if (!failed_.emplace(context.tensor.layer, context.tensor.name).second || !report_) return;
  report_({.check = id_,
           .iteration = context.iteration,
           .layer = context.tensor.layer,
           .tensor = context.tensor.name,
           .phase = context.moment.phase,
           .microbatch = context.moment.microbatch,
           .ranks = {},
           .what = std::move(what),
           .details = std::move(details)});
}

}  // namespace amaxscope
