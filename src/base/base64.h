// Base64 of RFC 4648, decoding only.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace vernier {

/// The bytes of padded base64 text. kInvalidArgument names the offset of the first bad character.
[[nodiscard]] Result<std::string> decode_base64(std::string_view text);

}  // namespace vernier
