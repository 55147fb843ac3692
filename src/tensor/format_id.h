// The identity of a storage format of weights. Opaque on purpose: the values are positions in the list of
// format/format_list.h, and code outside format/ asks that list instead of comparing ids.
#pragma once

#include <cstdint>

namespace vernier {

enum class FormatId : std::uint8_t {};

}  // namespace vernier
