#include "checkpoint/safetensors_dtype.h"

#include <algorithm>
#include <array>

namespace vernier {
namespace {

constexpr std::array kDtypes = {
    SafetensorsDtype{"BOOL", 8, DType::kBool},
    SafetensorsDtype{"F4", 4, {}},
    SafetensorsDtype{"F6_E2M3", 6, {}},
    SafetensorsDtype{"F6_E3M2", 6, {}},
    SafetensorsDtype{"U8", 8, DType::kU8},
    SafetensorsDtype{"I8", 8, DType::kI8},
    SafetensorsDtype{"F8_E5M2", 8, DType::kF8E5M2},
    SafetensorsDtype{"F8_E4M3", 8, DType::kF8E4M3},
    SafetensorsDtype{"F8_E8M0", 8, DType::kF8E8M0},
    SafetensorsDtype{"F8_E4M3FNUZ", 8, {}},
    SafetensorsDtype{"F8_E5M2FNUZ", 8, {}},
    SafetensorsDtype{"I16", 16, DType::kI16},
    SafetensorsDtype{"U16", 16, {}},
    SafetensorsDtype{"F16", 16, DType::kF16},
    SafetensorsDtype{"BF16", 16, DType::kBF16},
    SafetensorsDtype{"I32", 32, DType::kI32},
    SafetensorsDtype{"U32", 32, DType::kU32},
    SafetensorsDtype{"F32", 32, DType::kF32},
    SafetensorsDtype{"C64", 64, {}},
    SafetensorsDtype{"F64", 64, DType::kF64},
    SafetensorsDtype{"I64", 64, DType::kI64},
    SafetensorsDtype{"U64", 64, {}},
};

}  // namespace

const SafetensorsDtype* find_safetensors_dtype(std::string_view name) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return d.name == name; });
  return found != kDtypes.end() ? found : nullptr;
}

}  // namespace vernier
