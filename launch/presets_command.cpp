#include <fmt/format.h>

#include "core/error.hpp"
#include "features/presets.hpp"
#include "launch/commands.hpp"

namespace amaxscope::launch {

namespace {

void list_presets() {
  for (const Preset& preset : presets()) fmt::print("{:<10}{}\n", preset.name, preset.summary);
  fmt::print("\namaxscope presets NAME prints one as YAML; amaxscope train --preset NAME uses it.\n");
}

}  // namespace

Command add_presets(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand("presets", "ready-made debug configs, as YAML");
  auto name = std::make_shared<std::string>();
  subcommand->add_option("NAME", *name, "which one to print; without it they are listed");
  return {.app = subcommand, .run_alone = [name]() -> ExitStatus {
            if (name->empty()) {
              list_presets();
              return kDone;
            }
            const Preset* preset = find_preset(*name);
            AMAXSCOPE_CHECK(preset != nullptr, ErrorCode::kUsage, "there is no preset \"{}\"; there are {}",
                            *name, preset_names());
            fmt::print("{}", preset->yaml);
            return kDone;
          }};
}

}  // namespace amaxscope::launch
