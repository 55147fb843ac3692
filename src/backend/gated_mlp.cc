// A dense MLP of the operations that every backend has.
#include <array>

#include "backend/backend.h"

namespace vernier {

Status Backend::gated_mlp(const GatedMlpArgs& args) {
  const std::array<LinearOutput, 2> first = {args.gate, args.up};
  VN_TRY(linear({args.x, first, args.norm}));
  VN_TRY(gated_activation({args.activation, args.gate.y, args.up.y, args.gate.y}));
  return linear({args.gate.y, std::span(&args.down, 1)});
}

}  // namespace vernier
