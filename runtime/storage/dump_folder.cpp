#include "runtime/storage/dump_folder.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/storage/json_limits.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kWritten = "written";
constexpr std::string_view kSkipped = "skipped";

/// Anybody may have written it: what is not of the kind asked for is not there.
class ManifestLine {
 public:
  explicit ManifestLine(std::string_view line) {
    if (json_excess(line).empty()) json_ = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  }
  [[nodiscard]] std::string text(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  /// 0 as well for more than any disk holds.
  [[nodiscard]] std::uint64_t count(const char* key) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 53U;
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_number_unsigned()) return 0;
    const auto number = found->get<std::uint64_t>();
    return number <= kMost ? number : 0;
  }

 private:
  nlohmann::json json_;
};

}  // namespace

DumpFolder::DumpFolder(std::filesystem::path folder, Terms terms,
                       std::function<void(const std::string&)> warn)
    : folder_(std::move(folder)), terms_(std::move(terms)), warn_(std::move(warn)) {}

DumpFolder::~DumpFolder() {
  try {
    if (skipped_ > kSkippedLines) append(fmt::format("{{\"status\":\"end\",\"skipped\":{}}}\n", skipped_));
  } catch (const std::exception&) {
    // Nobody is left to be told.
  }
}

/// What is there already: bytes, and the files of iterations that this run may come to again.
void DumpFolder::load(std::int64_t first_iteration) {
  loaded_ = true;
  manifest_.emplace(folder_ / "manifest.jsonl");
  manifest_->visit_lines_backward(AppendFile::Tail::kAsLine, [&](std::string_view line, std::uintmax_t) {
    const ManifestLine entry(line);
    const std::string status = entry.text("status");
    const bool again = entry.count("iteration") >= static_cast<std::uint64_t>(first_iteration);
    if (status == kWritten) bytes_ += entry.count("bytes");
    if (again && status == kWritten) written_before_.insert(entry.text("file"));
    if (again && status == kSkipped) skipped_before_.insert(entry.text("file"));
    return true;
  });
}

void DumpFolder::write(const DumpMetadata& dump, std::span<const NamedTensor> tensors) {
  const std::string file =
      dump_iteration_folder(dump.identity.iteration) + "/" + dump_name(dump.identity) + ".safetensors";
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += tensor.view.bytes();
  try {
    if (!loaded_) load(dump.identity.iteration);
    if (written_before_.contains(file)) return;
    if (terms_.budget && bytes_ + bytes > static_cast<std::uint64_t>(*terms_.budget)) {
      skip(dump, file, bytes);
      return;
    }
    make_folder(folder_ / dump_iteration_folder(dump.identity.iteration));
    write_safetensors(folder_ / file, tensors, to_metadata(dump));
  } catch (const std::exception& error) {
    ++failed_;
    warn_once(said_failure_,
              fmt::format("{}: {}; the training goes on without this file and those that fail after it, "
                          "which the manifest lists",
                          terms_.who, error.what()));
    record(dump, file, bytes, "failed", error.what());
    return;
  }
  bytes_ += bytes;
  record(dump, file, bytes, kWritten, {});
}

void DumpFolder::skip(const DumpMetadata& dump, const std::string& file, std::uint64_t bytes) {
  ++skipped_;
  warn_once(said_budget_,
            fmt::format("{}: {} of layer {} at iteration {} would go over {} {} ({} bytes are used); it is "
                        "skipped, as is what does not fit after it",
                        terms_.who, dump.identity.tensor, dump.identity.layer, dump.identity.iteration,
                        terms_.budget_name, *terms_.budget, bytes_));
  if (skipped_before_.contains(file)) return;
  if (skipped_ <= kSkippedLines) record(dump, file, bytes, kSkipped, terms_.budget_name);
}

void DumpFolder::record(const DumpMetadata& dump, const std::string& file, std::uint64_t bytes,
                        std::string_view status, std::string_view why) {
  nlohmann::ordered_json line = {{"status", status},
                                 {"file", file},
                                 {"layer", dump.identity.layer},
                                 {"tensor", dump.identity.tensor},
                                 {"iteration", dump.identity.iteration},
                                 {"microbatch", dump.identity.microbatch},
                                 {"phase", to_string(dump.identity.phase)},
                                 {"shape", dump.shape},
                                 {"bytes", bytes}};
  if (!why.empty()) line["why"] = why;
  if (status == kSkipped) line["skipped"] = skipped_;
  if (status == "failed") line["failed"] = failed_;
  try {
    append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } catch (const std::exception& error) {
    warn_once(said_manifest_, fmt::format("{}: {}; the manifest is not complete", terms_.who, error.what()));
  }
}

void DumpFolder::append(const std::string& line) {
  if (!manifest_) manifest_.emplace(folder_ / "manifest.jsonl");
  manifest_->append(line);
}

void DumpFolder::warn_once(bool& said, const std::string& message) {
  if (std::exchange(said, true) || !warn_) return;
  warn_(message);
}

}  // namespace amaxscope
