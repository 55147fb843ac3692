// From what a user typed or piped in to prompt ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "vernier/engine.h"

namespace vernier::cli {

/// "1,2,3" or "1 2 3" to ids.
[[nodiscard]] Result<std::vector<std::int32_t>> parse_ids(std::string_view text);

/// All of a file, or of standard input for "-". At most 256 MiB.
[[nodiscard]] Result<std::string> read_text(const std::string& path);

/// A chat message of one role.
[[nodiscard]] Json make_message(std::string_view role, std::string_view content);

/// The ids of a conversation through the model's chat template, ready for the assistant's answer.
[[nodiscard]] Result<std::vector<std::int32_t>> chat_prompt(const Engine& engine, const JsonArray& messages);

/// The ids of a text as it is.
[[nodiscard]] Result<std::vector<std::int32_t>> raw_prompt(const Engine& engine, std::string_view text);

}  // namespace vernier::cli
