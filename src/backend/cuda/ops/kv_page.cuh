// Where a position of a sequence lies in the pages of a KV layer, and how its numbers are written and read. The
// device's counterpart of backend/kv_cell.h.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/step_tables.h"
#include "format/scalar_codecs.h"

namespace vernier::cuda {

/// Index of (position, head, dim 0) in the elements of keys or values.
__device__ inline std::int64_t kv_index(const KvLayer& kv, const StepView& step, const DeviceSlice& slice,
                                        std::int32_t position, std::int32_t head) {
  const std::int64_t page = step.pages[slice.first_page + position / kv.page_size];
  return ((page * kv.page_size + position % kv.page_size) * kv.num_kv_heads + head) * kv.head_dim;
}

/// An element type of the cache: Code as stored, load() without the layer's scale, store() saturating.
struct F32Cell {
  using Code = float;
  static constexpr bool kScaled = false;
  static __device__ float load(Code code) { return code; }
  static __device__ Code store(float value, float /*scale*/) { return value; }
};
struct BF16Cell {
  using Code = BF16Codec::Code;
  static constexpr bool kScaled = false;
  static __device__ float load(Code code) { return BF16Codec::decode(code); }
  static __device__ Code store(float value, float /*scale*/) { return BF16Codec::encode(value); }
};
struct E4M3Cell {
  using Code = E4M3Codec::Code;
  static constexpr bool kScaled = true;
  static __device__ float load(Code code) { return E4M3Codec::decode(code); }
  static __device__ Code store(float value, float scale) { return E4M3Codec::encode(value / scale); }
};

/// Calls visit(Cell{}) with the element type of `kv`.
template <class Visit>
Status visit_cell(const KvLayer& kv, const Visit& visit) {
  if (kv.dtype == DType::kF32) return visit(F32Cell{});
  if (kv.dtype == DType::kBF16) return visit(BF16Cell{});
  return visit(E4M3Cell{});
}

}  // namespace vernier::cuda
