// What of a session survives a restart: the runtime's own file, and beside it the state of the recipes.
#include <filesystem>

#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "runtime/quantizers/recipe_state.hpp"

namespace amaxscope::capi {

namespace {

constexpr const char* kFormat = "amaxscope recipe state 1";

std::filesystem::path file_of(std::string_view what, const amaxscope_session& session,
                              const std::filesystem::path& directory) {
  const int rank = session.groups ? session.groups->world().rank() : 0;
  return directory / fmt::format("amaxscope_{}_rank_{}.safetensors", what, rank);
}

RecipeParts recipe_parts(amaxscope_session& session) {
  RecipeParts parts{.delayed = session.delayed ? &*session.delayed : nullptr};
  for (const auto& layer : session.layers) {
    const OperandQuantizers& quantizers = layer->quantizers;
    const std::pair<TensorKind, Quantizer*> operands[] = {
        {TensorKind::kActivation, quantizers.activation.get()},
        {TensorKind::kWeight, quantizers.weight.get()},
        {TensorKind::kGradient, quantizers.gradient.get()}};
    for (const auto& [tensor, quantizer] : operands) {
      if (auto* const stream = dynamic_cast<Nvfp4Quantizer*>(quantizer)) {
        parts.streams.emplace(operand_name(layer->description, tensor), stream);
      }
    }
  }
  return parts;
}

void save_recipes(amaxscope_session& session, const std::filesystem::path& directory) {
  std::vector<NamedTensor> tensors;
  std::deque<Tensor> kept;
  add_recipe_state(recipe_parts(session), tensors, kept);
  write_safetensors(file_of("recipes", session, directory), tensors,
                    {{"format", kFormat}, {"iteration", fmt::format("{}", session.session->iteration())}},
                    Durability::kPowerCut);
}

/// Both files are read, and found to fit, before anything changes.
void load(amaxscope_session& session, const std::filesystem::path& directory) {
  const SafetensorsFile file(file_of("recipes", session, directory));
  const std::string& format = file.metadata_text("format");
  AMAXSCOPE_CHECK(format == kFormat, ErrorCode::kInput, "{}: format is {}, expected {}", file.path().string(),
                  format, kFormat);
  const RecipeParts parts = recipe_parts(session);
  RecipeState state = read_recipe_state(file, parts);
  AMAXSCOPE_CHECK(file.tensors().size() == 2 * state.slots.size() + state.places.size(), ErrorCode::kInput,
                  "{}: has {} tensors and the layers of this session {}; register the same layers first",
                  file.path().string(), file.tensors().size(), 2 * state.slots.size() + state.places.size());
  const SafetensorsFile of_session(file_of("session", session, directory));
  AMAXSCOPE_CHECK(
      file.metadata_count("iteration") == of_session.metadata_count("iteration"), ErrorCode::kInput,
      "{}: is of iteration {} and {} of iteration {}; they were saved together", file.path().string(),
      file.metadata_count("iteration"), of_session.path().string(), of_session.metadata_count("iteration"));
  session.session->load_state(directory);
  restore_recipe_state(std::move(state), parts);
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_save_state(amaxscope_session* session, const char* directory) {
  return capi::call([&] {
    amaxscope_session& own = capi::required(session, "session");
    const std::filesystem::path where = &capi::required(directory, "directory");
    capi::save_recipes(own, where);
    own.session->save_state(where);
  });
}

amaxscope_status amaxscope_load_state(amaxscope_session* session, const char* directory) {
  return capi::call(
      [&] { capi::load(capi::required(session, "session"), &capi::required(directory, "directory")); });
}

}  // extern "C"
