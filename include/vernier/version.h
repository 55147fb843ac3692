// The version of the library.
#pragma once

#include <string_view>

namespace vernier {

/// "0.1.0".
[[nodiscard]] std::string_view version();

}  // namespace vernier
