// ActivationSpec in the kernels' own words.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"

namespace vernier {

[[nodiscard]] inline vernier_isa::Gate make_gate(const ActivationSpec& spec) {
  using vernier_isa::GateKind;
  switch (spec.kind) {
    case Activation::kSilu: return {GateKind::kSilu, spec.alpha, spec.limit};
    case Activation::kGeluTanh: return {GateKind::kGeluTanh, spec.alpha, spec.limit};
    case Activation::kClampedSwiglu: break;
  }
  return {GateKind::kClampedSwiglu, spec.alpha, spec.limit};
}

}  // namespace vernier
