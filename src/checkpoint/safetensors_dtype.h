// The element types of safetensors: names and sizes. What is computed with is a DType (tensor/dtype.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace vernier {

struct SafetensorsDtype {
  std::string_view name;  ///< "F8_E4M3": static storage
  std::uint32_t bits;     ///< of one element
  std::optional<DType> dtype;
};

/// The element type called `name`, or null.
[[nodiscard]] const SafetensorsDtype* find_safetensors_dtype(std::string_view name);

}  // namespace vernier
