// What a name taken from a file may look like, for all containers.
#pragma once

#include <string_view>

#include "base/result.h"
#include "checkpoint/container_options.h"

namespace vernier {

/// True for well-formed UTF-8 without control characters (C0, DEL, C1), NUL included.
[[nodiscard]] bool is_clean_text(std::string_view text);

/// kCorrupt unless `name` can be a tensor's name: clean, not empty, within the limit.
[[nodiscard]] Status check_tensor_name(std::string_view name, const ContainerLimits& limits);

}  // namespace vernier
