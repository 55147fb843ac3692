// Weights as records of bytes that a plain copy moves: rows together, scales behind the codes. Whoever moves records
// knows sizes and addresses, never formats.
#pragma once

#include <cstdint>

#include "tensor/weight.h"

namespace vernier {

/// Offsets within records are multiples of this, so that a kernel may load whole vectors.
inline constexpr std::uint64_t kRecordAlignment = 256;

[[nodiscard]] constexpr std::uint64_t align_record(std::uint64_t bytes) {
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

/// Size of a weight's record when it keeps the bytes as they are stored; a multiple of kRecordAlignment.
[[nodiscard]] std::uint64_t stored_bytes(const Weight& host);

/// Writes that record at `to` (aligned as records are) and returns the weight that lies there. It owns nothing.
[[nodiscard]] Weight pack_as_stored(const Weight& host, std::byte* to);

/// The same weight after its record has been copied from `from` to `to`, in whatever memory that is.
[[nodiscard]] Weight moved_weight(Weight weight, const std::byte* from, const std::byte* to);

}  // namespace vernier
