// What Precision does to the input of a linear and to the query of attention, on the host.
#pragma once

#include "backend/backend.h"
#include "format/scalar_codecs.h"

namespace vernier {

[[nodiscard]] inline float round_input(float value, Precision precision) {
  return precision == Precision::kBf16 ? BF16Codec::decode(BF16Codec::encode(value)) : value;
}

}  // namespace vernier
