// The books of experts in slots as they lie in device memory, and the kernels that keep them.
//
// The order of uses is a log of slots. Each use appends its slot, and the entry that a slot's `used_at` names is the
// one that counts; earlier ones are dead. So a use costs two stores, victims are the first living entries from the head
// on, found by a block that looks at hundreds of entries at a time, and every entry is passed once. When the log is
// full its living entries, one a slot, move to the front.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

struct SlotState {
  std::int32_t head = 0;  ///< of the log: entries before it are dead
  std::int32_t tail = 0;
  std::uint32_t turn = 0;    ///< admissions so far
  std::int32_t fetches = 0;  ///< of the latest admission
  std::uint64_t found = 0;
  std::uint64_t moved = 0;
  std::uint64_t moved_bytes = 0;
  std::uint64_t begun_at = 0;  ///< ns: when the latest copies began
  std::uint64_t copy_ns = 0;   ///< what the latest copies took
  std::uint64_t copy_bytes = 0;
  unsigned arrivals = 0;  ///< blocks that have copied; 0 between kernels
};

struct ExpertRecord {
  const std::byte* data = nullptr;  ///< host memory that the device reads
  std::uint64_t size_bytes = 0;     ///< a multiple of 16
};

struct SlotFetch {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t size_bytes = 0;
};

/// A key numbers the experts of all layers.
struct SlotTables {
  SlotState* state = nullptr;
  std::int32_t* slot_of = nullptr;        ///< [keys], -1: none
  std::int32_t* key_of = nullptr;         ///< [slots], -1: empty
  std::int32_t* used_at = nullptr;        ///< [slots] the slot's living entry
  std::int32_t* log = nullptr;            ///< [log_size]
  const ExpertRecord* records = nullptr;  ///< [keys]
  // Tables of all layers, [3, experts] each: gate, up and down. A layer's begins at three times its first key.
  const MatrixRef* home = nullptr;  ///< in their records
  MatrixRef* current = nullptr;     ///< those that were chosen last: in slots
  SlotFetch* fetches = nullptr;     ///< [experts]
  std::byte* slots = nullptr;
  std::uint64_t slot_bytes = 0;
  std::int32_t num_slots = 0;
  std::int32_t log_size = 0;  ///< at least num_slots and what one kernel appends
};

constexpr std::int32_t kMostSlotExperts = 2048;  ///< of a layer

struct SlotAdmission {
  const std::int32_t* ids = nullptr;  ///< [uses], those outside the experts don't count
  std::int32_t uses = 0;
  std::int32_t experts = 0;    ///< of the layer
  std::int32_t first_key = 0;  ///< of expert 0
};
/// Gives every chosen expert a slot, fills tables.current for them, and leaves what must be fetched.
[[nodiscard]] cudaError_t admit_experts(const SlotTables& tables, const SlotAdmission& admission, cudaStream_t stream);
/// Fetches it.
[[nodiscard]] cudaError_t fetch_experts(const SlotTables& tables, cudaStream_t stream);

struct SlotUse {
  std::int32_t slot = 0;
  std::int32_t key = 0;
};
constexpr std::int32_t kMostSlotUses = 2048;
/// Uses by the host, `count` of them at most kMostSlotUses, in device memory.
[[nodiscard]] cudaError_t record_slot_uses(const SlotTables& tables, const SlotUse* uses, std::int32_t count,
                                           cudaStream_t stream);

}  // namespace vernier::cuda
