// Element types of plain arrays: activations, vectors, scales, and what containers call their dtype.
// How quantised weights are stored is a FormatId (format_id.h), not a DType.
#pragma once

#include <cstdint>
#include <string_view>

namespace vernier {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kU32,
  kF64,
  kBool,
};

/// Bits of one element: a whole number of bytes for every type here.
[[nodiscard]] constexpr unsigned dtype_bits(DType type) {
  switch (type) {
    case DType::kF64:
    case DType::kI64: return 64;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 32;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16: return 16;
    default: return 8;
  }
}

/// The safetensors spelling: "F32", "BF16", "F8_E4M3", ...
[[nodiscard]] constexpr std::string_view dtype_name(DType type) {
  constexpr std::string_view kNames[] = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U8",
                                         "I8",  "I16", "I32",  "I64",     "U32",     "F64",     "BOOL"};
  return kNames[static_cast<unsigned>(type)];
}

}  // namespace vernier
