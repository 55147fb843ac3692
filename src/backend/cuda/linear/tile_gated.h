// The activation between a dense MLP's products, as the tiled input of the last.
#pragma once

#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

/// act(gate, up) of rows into tiles of one term; rows and columns as tile_input() has them.
[[nodiscard]] cudaError_t tile_gated(const MatrixView& gate, const MatrixView& up, const ActivationSpec& spec,
                                     const TiledInput& to, cudaStream_t stream);

}  // namespace vernier::cuda
