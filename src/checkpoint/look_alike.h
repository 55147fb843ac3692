// Recognises files that are often found where a model should be, so that the message can say what went wrong.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace vernier {

/// True when the bytes begin like a GGUF file of either byte order.
[[nodiscard]] bool has_gguf_magic(std::span<const std::byte> bytes);

/// The error for bytes that aren't `expected` ("a GGUF file") but something known: a Git-LFS pointer, an HTML page, a
/// pickle, ... It says what they look like and what to do about it. Nothing when they look like nothing known.
[[nodiscard]] std::optional<Error> look_alike_error(std::string_view expected, std::span<const std::byte> bytes);

}  // namespace vernier
