// Template source -> Program. Recursive descent whose depth is limited, so that no source can exhaust the stack.
#pragma once

#include <string_view>

#include "chat/jinja/node.h"

namespace vernier::jinja {

/// Parses well-formed UTF-8 source. Errors read "template line N: ...".
[[nodiscard]] Result<Program> parse(std::string_view source, const TemplateLimits& limits);

}  // namespace vernier::jinja
