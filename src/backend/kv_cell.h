// One number of a KV cache: how the three element types are written and read. Host side only.
#pragma once

#include <cstring>

#include "backend/backend.h"
#include "format/scalar_codecs.h"

namespace vernier {

/// Bytes of an element of keys or values.
[[nodiscard]] inline std::int64_t kv_element_bytes(DType type) { return dtype_bits(type) / 8; }

/// Index of (position, head, dim 0) of a sequence in the elements of keys or values.
[[nodiscard]] inline std::int64_t kv_index(const KvLayer& kv, const SequenceSlice& slice, std::int64_t position,
                                           std::int64_t head) {
  const std::int64_t page = slice.pages[static_cast<std::size_t>(position / kv.page_size)];
  return ((page * kv.page_size + position % kv.page_size) * kv.num_kv_heads + head) * kv.head_dim;
}

/// Writes `value` as element `index`, rounded to the cache's type (kF8E4M3: value / scale, saturating).
inline void store_kv(const KvLayer& kv, void* elements, std::int64_t index, float value, float scale) {
  auto* bytes = static_cast<std::byte*>(elements) + index * kv_element_bytes(kv.dtype);
  if (kv.dtype == DType::kF32) {
    std::memcpy(bytes, &value, sizeof(value));
  } else if (kv.dtype == DType::kBF16) {
    const BF16Codec::Code code = BF16Codec::encode(value);
    std::memcpy(bytes, &code, sizeof(code));
  } else {
    const E4M3Codec::Code code = E4M3Codec::encode(value / scale);
    std::memcpy(bytes, &code, sizeof(code));
  }
}

/// Element `index` as stored; kF8E4M3 still wants the layer's scale.
[[nodiscard]] inline float load_kv(const KvLayer& kv, const void* elements, std::int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(elements) + index * kv_element_bytes(kv.dtype);
  if (kv.dtype == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  if (kv.dtype == DType::kBF16) {
    BF16Codec::Code code = 0;
    std::memcpy(&code, bytes, sizeof(code));
    return BF16Codec::decode(code);
  }
  return decode_code<E4M3Codec>(static_cast<E4M3Codec::Code>(*bytes));
}

}  // namespace vernier
