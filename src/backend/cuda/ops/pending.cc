#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {

Status rope_and_store_kv(CudaContext&, const RopeStoreArgs&) { return fail(ErrorCode::kUnsupported, "cuda: no rope"); }
Status attention(CudaContext&, const AttentionArgs&) { return fail(ErrorCode::kUnsupported, "cuda: no attention"); }
Status gated_delta_net(CudaContext&, const GatedDeltaNetArgs&) { return fail(ErrorCode::kUnsupported, "cuda: no net"); }

}  // namespace vernier::cuda
