// Flags beyond the command line: every --flag can be set by the environment (VERNIER_FLAG) and by a config file.
// Precedence: command line, environment, file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "base/result.h"

namespace vernier::cli {

/// Gives every option of `app` its environment name: --max-tokens reads VERNIER_MAX_TOKENS.
void add_environment_names(CLI::App& app);

/// Reads the file that --config (or VERNIER_CONFIG) names, "key = value" lines, and puts each key into the environment
/// unless it's set there already: the file then counts after flags and environment. Keys that no verb knows are errors.
/// Call before parsing and before any thread exists.
[[nodiscard]] Status apply_config_file(const CLI::App& app, int argc, const char* const* argv);

}  // namespace vernier::cli
