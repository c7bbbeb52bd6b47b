#include "core/error.hpp"
#include "launch/commands.hpp"

namespace amaxscope::launch {

namespace {

struct Unbuilt {
  const char* name;
  const char* does;
};

constexpr Unbuilt kUnbuilt[] = {
    {"blame", "bisects which GEMM or layer does the damage, over several runs"},
};

}  // namespace

std::vector<Command> add_unbuilt(CLI::App& app) {
  std::vector<Command> commands;
  for (const Unbuilt& unbuilt : kUnbuilt) {
    CLI::App* subcommand = app.add_subcommand(unbuilt.name, std::string("(not built yet) ") + unbuilt.does);
    subcommand->allow_extras();
    const std::string name = unbuilt.name;
    commands.push_back({.app = subcommand, .run_alone = [name]() -> ExitStatus {
                          throw Error(ErrorCode::kUsage, "`" + name + "` is not built yet in this version");
                        }});
  }
  return commands;
}

}  // namespace amaxscope::launch
