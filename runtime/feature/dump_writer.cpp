#include "runtime/feature/dump_writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace amaxscope {

DumpWriter::DumpWriter(const FeatureServices& services, const std::filesystem::path& dir,
                       DumpFolder::Terms terms)
    : services_(services),
      folder_(dump_rank_folder(dir, services.world_rank), std::move(terms), services.warn) {}

void DumpWriter::write(const InspectContext& context, const OperandParts& parts) {
  if (parts.tensors().empty()) return;
  DumpMetadata dump = describe(context);
  dump.directions = parts.formats();
  folder_.write(dump, parts.tensors());
}

DumpMetadata DumpWriter::describe(const InspectContext& context) {
  const InspectedTensor& tensor = context.tensor;
  const auto own = [&](const std::vector<int>& ranks) {
    return ranks.empty() ? std::vector<int>{services_.world_rank} : ranks;
  };
  DumpMetadata dump;
  dump.identity = {.layer = tensor.layer,
                   .tensor = tensor.name,
                   .iteration = context.iteration,
                   .microbatch = context.moment.microbatch,
                   .phase = context.moment.phase};
  if (std::exchange(iteration_, context.iteration) != context.iteration) occurrences_.clear();
  dump.identity.occurrence = occurrences_[dump.identity]++;
  dump.rank = services_.world_rank;
  dump.layout = tensor.layout;
  dump.tp_ranks = own(services_.tp_ranks);
  dump.dp_ranks = own(services_.dp_ranks);
  dump.stage_ranks = own(services_.stage_ranks);
  dump.recipe = to_string(tensor.recipe);
  dump.format = to_string(context.quantizer != nullptr ? context.quantizer->format() : context.x.dtype());
  const Shape& shape = context.has_original         ? context.x.shape()
                       : context.rowwise != nullptr ? context.rowwise->shape()
                                                    : context.columnwise->shape();
  dump.shape = fmt::format("{}", fmt::join(shape.extents(), ","));
  dump.observed = tensor.description == nullptr;
  if (const LayerDescription* layer = tensor.description) {
    dump.tp_ranks =
        layer->tp_group == nullptr ? std::vector{services_.world_rank} : layer->tp_group->world_ranks();
    dump.layer_number = layer->number;
    dump.parallel = layer->parallel;
    dump.sequence_parallel = layer->sequence_parallel;
    dump.gathers_before_quantizing = layer->gathers_before_quantizing;
    dump.compute_dtype = layer->compute_dtype;
  }
  return dump;
}

}  // namespace amaxscope
