// The arguments of an expert_mlp() as arrays that travel to the host.
#pragma once

#include "backend/backend.h"
#include "backend/host_detour.h"

namespace vernier {

[[nodiscard]] inline DetourArray choices_array(const ExpertMlpArgs& args) {
  return {const_cast<std::int32_t*>(args.ids), args.x.rows, args.top_k, args.top_k};
}
[[nodiscard]] inline DetourArray weights_array(const ExpertMlpArgs& args) {
  return {const_cast<float*>(args.weights), args.x.rows, args.top_k, args.top_k};
}
[[nodiscard]] inline DetourArray matrix_array(const MatrixView& matrix) {
  return {matrix.data, matrix.rows, matrix.cols, matrix.stride};
}

}  // namespace vernier
