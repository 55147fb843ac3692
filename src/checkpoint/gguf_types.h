// The table of ggml tensor types: ids, names and block sizes of everything a GGUF file can hold, also of what Vernier
// doesn't run. Sizes only; what the bytes mean is in format/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace vernier {

/// One tensor type of ggml.
struct GgmlType {
  std::uint32_t id;
  std::string_view name;       ///< lower case: "q4_k"
  std::uint32_t block_values;  ///< elements of a block along the innermost dimension
  std::uint32_t block_bytes;
  std::optional<DType> dtype;  ///< for plain arrays (block_values == 1)
};

/// All known types in ascending order of id.
[[nodiscard]] std::span<const GgmlType> ggml_types();

/// The type with this id, or kCorrupt: "type id 9999 is unknown", "type id 4 was removed from ggml (q4_2)".
[[nodiscard]] Result<const GgmlType*> find_ggml_type(std::uint32_t id);

}  // namespace vernier
