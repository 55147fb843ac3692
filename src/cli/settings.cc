#include "cli/settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

namespace vernier::cli {
namespace {

std::string environment_name(std::string flag) {
  for (char& letter : flag) {
    letter = letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return "VERNIER_" + flag;
}

std::optional<std::string> config_path(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == "--config" && i + 1 < argc) return argv[i + 1];
    if (word.starts_with("--config=")) return std::string(word.substr(9));
  }
  if (const char* path = std::getenv("VERNIER_CONFIG"); path != nullptr && *path != '\0') return path;
  return std::nullopt;
}

std::set<std::string> known_flags(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) {
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) names.insert(name);
    }
  }
  return names;
}

}  // namespace

void add_environment_names(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    option->envname(environment_name(option->get_lnames().front()));
  }
}

Status apply_config_file(const CLI::App& app, int argc, const char* const* argv) {
  const auto path = config_path(argc, argv);
  if (!path) return {};
  std::ifstream file(*path);
  if (!file) return fail(ErrorCode::kNotFound, "--config {}: cannot be read", escape(*path));
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigINI().from_config(file);
  } catch (const CLI::Error& error) {
    return fail(ErrorCode::kCorrupt, "--config {}: {}", escape(*path), escape(error.what(), 300));
  }
  const std::set<std::string> known = known_flags(app);
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // section borders
    if (known.count(item.name) == 0) {
      return fail(ErrorCode::kInvalidArgument, "--config {}: unknown key '{}'", escape(*path), escape(item.name));
    }
    std::string value;
    for (const std::string& input : item.inputs) value += (value.empty() ? "" : ",") + input;
    setenv(environment_name(item.name).c_str(), value.c_str(), /*overwrite=*/0);
  }
  return {};
}

}  // namespace vernier::cli
