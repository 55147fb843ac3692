// Linear layers and embeddings of the CUDA backend, over weights of every format.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

/// Uploads a weight. The result's pointers are device pointers; its owner is a PlacedWeight (placed_weight.h).
[[nodiscard]] Result<Weight> place_weight(CudaContext& context, const Weight& host);
/// A weight as place_weight() would make it, written to host memory; its bytes in device memory may be moved there by a
/// plain copy (Backend::pack()). record_bytes() is the room that any weight of this shape and format may need.
[[nodiscard]] Result<Weight> pack_record(CudaContext& context, const Weight& host, std::byte* record);
[[nodiscard]] std::uint64_t record_bytes(const Weight& host);
/// Success: there are kernels for every format of the list.
[[nodiscard]] Status check_format(FormatId format);

/// These enqueue kernels and don't wait. Arguments have passed check_args().
[[nodiscard]] Status linear(CudaContext& context, const LinearArgs& args);
/// gated_mlp() in two launches of products; false, and nothing is done, where there are no kernels for it.
[[nodiscard]] Result<bool> fused_mlp(CudaContext& context, const GatedMlpArgs& args);
[[nodiscard]] Status embed(CudaContext& context, const EmbedArgs& args);

}  // namespace vernier::cuda
