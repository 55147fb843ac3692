// Keeping the books of experts in slots. One block keeps them, so that nothing there needs atomics or other blocks; the
// copies are many blocks' work.
//
// Order: all of these kernels, and those that read slots, run on one stream and wait for what is in front of them. When
// an admission gives a slot away, every kernel that read the slot's expert has ended; when the products of a step read
// a slot, the copy into it has ended.
#include "backend/cuda/experts/slot_kernels.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
/// The bus is full with these, and more only get into each other's way.
constexpr unsigned kCopyBlocks = 32;

/// For two flags at a time: how many threads before this one have them, and how many of the block.
struct Ranks {
  int first;
  int second;
  int firsts;
  int seconds;
};

/// All threads call it; it synchronises them. Counts of both flags share a word.
__device__ Ranks rank_in_block(bool first, bool second) {
  constexpr int kHalf = 16;
  constexpr unsigned kLow = (1U << kHalf) - 1;
  __shared__ unsigned counts[kWarps];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned before = (1U << lane) - 1;
  const unsigned firsts = __ballot_sync(0xFFFFFFFFU, first);
  const unsigned seconds = __ballot_sync(0xFFFFFFFFU, second);
  if (lane == 0) counts[warp] = static_cast<unsigned>(__popc(firsts)) | static_cast<unsigned>(__popc(seconds)) << kHalf;
  __syncthreads();
  unsigned rank = static_cast<unsigned>(__popc(firsts & before)) | static_cast<unsigned>(__popc(seconds & before))
                                                                       << kHalf;
  unsigned total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w == warp) rank += total;
    total += counts[w];
  }
  __syncthreads();
  return {static_cast<int>(rank & kLow), static_cast<int>(rank >> kHalf), static_cast<int>(total & kLow),
          static_cast<int>(total >> kHalf)};
}

/// The log on its way through a kernel; every thread has the same numbers.
struct Log {
  const SlotTables& tables;
  int head;
  int tail;

  explicit __device__ Log(const SlotTables& of) : tables(of), head(of.state->head), tail(of.state->tail) {}

  /// The slot of an entry of [head, end) if it lives, else -1.
  [[nodiscard]] __device__ int living(int entry, int end) const {
    if (entry >= end) return -1;
    const int slot = tables.log[entry];
    return tables.used_at[slot] == entry ? slot : -1;
  }
  /// Makes room for `count` entries.
  __device__ void reserve(int count) {
    if (tail + count <= tables.log_size) return;
    int end = 0;
    for (int at = head; at < tail; at += kThreads) {
      const int slot = living(at + static_cast<int>(threadIdx.x), tail);
      const Ranks ranks = rank_in_block(slot >= 0, false);  // all have read before any writes
      if (slot >= 0) use(slot, end + ranks.first);
      end += ranks.firsts;
    }
    head = 0;
    tail = end;
    __syncthreads();
  }
  __device__ void use(int slot, int entry) const {
    tables.log[entry] = slot;
    tables.used_at[slot] = entry;
  }
};

__device__ std::uint64_t nanoseconds() {
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

/// The chosen experts, rising, in shared memory.
struct Chosen {
  std::int32_t* expert;
  std::int32_t* slot;     ///< -1: none
  std::int32_t* missing;  ///< numbers of those that had none
  std::uint8_t* flag;     ///< [experts]: is chosen

  static constexpr std::size_t bytes(std::int32_t experts) {
    return static_cast<std::size_t>(experts) * (3 * sizeof(std::int32_t) + 1);
  }
  static __device__ Chosen at(std::int32_t* memory, int experts) {
    return {memory, memory + experts, memory + 2 * experts, reinterpret_cast<std::uint8_t*>(memory + 3 * experts)};
  }
};

__device__ void mark_chosen(const SlotAdmission& admission, const Chosen& chosen) {
  for (int i = static_cast<int>(threadIdx.x); i < admission.uses; i += kThreads) {
    const int id = admission.ids[i];
    if (id >= 0 && id < admission.experts) chosen.flag[id] = 1;
  }
  __syncthreads();
}

struct Found {
  int chosen = 0;
  int missing = 0;
};

/// Lists the chosen experts, and appends those that have slots to the log.
__device__ Found look_up(const SlotAdmission& admission, const Chosen& chosen, const Log& log) {
  Found found;
  for (int begin = 0; begin < admission.experts; begin += kThreads) {
    const int e = begin + static_cast<int>(threadIdx.x);
    const bool is_chosen = e < admission.experts && chosen.flag[e] != 0;
    const int slot = is_chosen ? log.tables.slot_of[admission.first_key + e] : -1;
    const bool is_missing = is_chosen && slot < 0;
    const Ranks ranks = rank_in_block(is_chosen, is_missing);
    if (is_chosen) {
      const int number = found.chosen + ranks.first;
      chosen.expert[number] = e;
      chosen.slot[number] = slot;
      if (is_missing) {
        chosen.missing[found.missing + ranks.second] = number;
      } else {
        log.use(slot, log.tail + number);
      }
    }
    found.chosen += ranks.firsts;
    found.missing += ranks.seconds;
  }
  __syncthreads();
  return found;
}

/// Gives missing experts the slots that were unused for longest; those of this step have a later use by now. Returns
/// how many got one: all, unless the step chose more experts than there are slots.
__device__ int replace(const SlotAdmission& admission, const Chosen& chosen, int missing, Log& log) {
  __shared__ int new_head;
  const SlotTables& tables = log.tables;
  int given = 0;
  int at = log.head;
  for (; given < missing && at < log.tail; at += kThreads) {
    const int entry = at + static_cast<int>(threadIdx.x);
    const int slot = log.living(entry, log.tail);
    const Ranks ranks = rank_in_block(slot >= 0, false);
    const int order = given + ranks.first;
    if (slot >= 0 && order < missing) {
      const int number = chosen.missing[order];
      const int key = admission.first_key + chosen.expert[number];
      const int old = tables.key_of[slot];
      if (old >= 0) tables.slot_of[old] = -1;
      tables.key_of[slot] = key;
      tables.slot_of[key] = slot;
      log.use(slot, log.tail + number);
      chosen.slot[number] = slot;
      const ExpertRecord record = tables.records[key];
      tables.fetches[order] = {record.data, tables.slots + static_cast<std::uint64_t>(slot) * tables.slot_bytes,
                               record.size_bytes};
      if (order == missing - 1) new_head = entry + 1;
    }
    given += ranks.firsts;
  }
  __syncthreads();
  if (missing > 0) log.head = given >= missing ? new_head : min(at, log.tail);
  return min(given, missing);
}

template <class T>
__device__ const T* moved(const T* pointer, std::ptrdiff_t by) {
  return pointer == nullptr ? nullptr : reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(pointer) + by);
}

/// Where the chosen experts' matrices are. One without a slot is read where it lies.
__device__ void point_at_slots(const SlotTables& tables, const SlotAdmission& admission, const Chosen& chosen,
                               int count) {
  for (int i = static_cast<int>(threadIdx.x); i < 3 * count; i += kThreads) {
    const int e = chosen.expert[i / 3];
    const int slot = chosen.slot[i / 3];
    const int at = admission.first_key * 3 + i % 3 * admission.experts + e;
    MatrixRef matrix = tables.home[at];
    if (slot >= 0) {
      const std::byte* const to = tables.slots + static_cast<std::uint64_t>(slot) * tables.slot_bytes;
      const std::ptrdiff_t by = to - tables.records[admission.first_key + e].data;
      matrix.weight.codes = moved(matrix.weight.codes, by);
      matrix.weight.scales = moved(matrix.weight.scales, by);
      matrix.weight.row_factors = moved(matrix.weight.row_factors, by);
      matrix.bias = moved(matrix.bias, by);
    }
    tables.current[at] = matrix;
  }
}

__global__ void __launch_bounds__(kThreads)
    admit_kernel(const __grid_constant__ SlotTables tables, const __grid_constant__ SlotAdmission admission) {
  extern __shared__ std::int32_t memory[];
  const Chosen chosen = Chosen::at(memory, admission.experts);
  for (int e = static_cast<int>(threadIdx.x); e < admission.experts; e += kThreads) chosen.flag[e] = 0;
  release_successor();
  wait_for_predecessor();
  __syncthreads();
  mark_chosen(admission, chosen);
  Log log(tables);
  log.reserve(min(admission.uses, admission.experts));
  const Found found = look_up(admission, chosen, log);
  const int fetches = replace(admission, chosen, found.missing, log);
  point_at_slots(tables, admission, chosen, found.chosen);
  if (threadIdx.x != 0) return;
  SlotState& state = *tables.state;
  state.head = log.head;
  state.tail = log.tail + found.chosen;
  ++state.turn;
  state.fetches = fetches;
  state.found += static_cast<std::uint64_t>(found.chosen - found.missing);
  state.moved += static_cast<std::uint64_t>(fetches);
  if (fetches > 0) state.begun_at = nanoseconds();
}

/// Sixteen bytes of a record: they never change, and nobody reads them twice.
__device__ __forceinline__ uint4 load_record(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

/// A thread's share of a record, kAtOnce loads on their way together.
__device__ void copy_record(const SlotFetch& fetch) {
  constexpr int kAtOnce = 4;
  constexpr std::int64_t kStep = std::int64_t{kCopyBlocks} * kThreads;
  const auto* const from = reinterpret_cast<const uint4*>(fetch.from);
  auto* const to = reinterpret_cast<uint4*>(fetch.to);
  const auto count = static_cast<std::int64_t>(fetch.size_bytes / sizeof(uint4));
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += kAtOnce * kStep) {
    uint4 values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * kStep < count) values[j] = load_record(from + i + j * kStep);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * kStep < count) to[i + j * kStep] = values[j];
    }
  }
}

__global__ void __launch_bounds__(kThreads) fetch_kernel(const __grid_constant__ SlotTables tables) {
  release_successor();
  wait_for_predecessor();
  SlotState& state = *tables.state;
  const int count = state.fetches;
  if (count == 0) return;
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const SlotFetch fetch = tables.fetches[i];
    copy_record(fetch);
    bytes += fetch.size_bytes;
  }
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&state.arrivals, 1U) + 1 != kCopyBlocks) return;
  state.arrivals = 0;
  state.copy_ns = nanoseconds() - state.begun_at;
  state.copy_bytes = bytes;
  state.moved_bytes += bytes;
}

__global__ void __launch_bounds__(kThreads)
    record_uses_kernel(const __grid_constant__ SlotTables tables, const SlotUse* uses, int count) {
  release_successor();
  wait_for_predecessor();
  Log log(tables);
  log.reserve(count);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int slot = uses[i].slot;
    const int old = tables.key_of[slot];
    if (old >= 0 && tables.slot_of[old] == slot) tables.slot_of[old] = -1;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const SlotUse use = uses[i];
    tables.key_of[use.slot] = use.key;
    tables.slot_of[use.key] = use.slot;
    log.use(use.slot, log.tail + i);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  tables.state->head = log.head;
  tables.state->tail = log.tail + count;
}

}  // namespace

cudaError_t admit_experts(const SlotTables& tables, const SlotAdmission& admission, cudaStream_t stream) {
  return launch_dependent(admit_kernel, dim3(1), kThreads, Chosen::bytes(admission.experts), stream, tables, admission);
}

cudaError_t fetch_experts(const SlotTables& tables, cudaStream_t stream) {
  return launch_dependent(fetch_kernel, dim3(kCopyBlocks), kThreads, 0, stream, tables);
}

cudaError_t record_slot_uses(const SlotTables& tables, const SlotUse* uses, std::int32_t count, cudaStream_t stream) {
  return launch_dependent(record_uses_kernel, dim3(1), kThreads, 0, stream, tables, uses, count);
}

}  // namespace vernier::cuda
