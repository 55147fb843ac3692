// What compute-sanitizer's racecheck follows: the ways in which this engine's kernels hand shared memory from warp to
// warp, each alone in a kernel of some lines, and the same with the order left out. A tool that names a pattern of the
// first kind is wrong about it, one that doesn't name one of the second is blind to it.
//
//   racecheck_patterns                 their names, after each "ordered" or "unordered"
//   racecheck_patterns PATTERN         runs it; the exit status is 1 if its results are wrong
//
// bench/sanitize_cuda.py --patterns runs each under the tool. Built on demand, for sm_90a.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "backend/cuda/fragment/wgmma.cuh"
#include "backend/cuda/linear/async_clusters.cuh"
#include "backend/cuda/linear/narrow_barrier.cuh"

namespace vernier::cuda {
namespace {

constexpr int kRounds = 12;  ///< stages handed over
constexpr int kDepth = 2;    ///< of a ring
constexpr int kReaders = 4;  ///< warps that read one
constexpr int kPart = 512;   ///< bytes of a stage for each
constexpr int kStageBytes = kReaders * kPart;
constexpr int kProducers = 2;  ///< warps
constexpr int kBlocks = 4;     ///< of a launch

/// Who fills a stage.
enum class Fill {
  kStores,     ///< all lanes of both producing warps, each of which arrives
  kOneThread,  ///< bulk copies of one thread, which arrives
  kTwo,        ///< bulk copies of two threads, of which one arrives for the bytes of both
  kTwoArrive,  ///< bulk copies of two threads, each of which arrives for its own
};
/// How a warp that has read its part of a stage says so.
enum class Leave {
  kEachLane,
  kEachLaneAtBoth,  ///< at the barriers of both blocks of the cluster
  kAfterSync,       ///< its first lane, after __syncwarp()
  kAfterAsync,      ///< its first lane, after the four warps have waited for the tensor cores together
  kFirst,           ///< its first lane, at once
  kAtBoth,          ///< its first two lanes, after __syncwarp(), each at the barrier of one block of the cluster
  kAtBothCluster,   ///< the same with memory ordered for the cluster
  kAtOwnAsCluster,  ///< its first lane, after __syncwarp(), by the address that its block has in the cluster
};
/// How the producers wait for that.
enum class Await {
  kTry,
  kTest,
  kTryCluster,  ///< with memory ordered for the cluster
  kOneOnly,     ///< as kTry, but all stages are the same bytes, of which only every other round is waited for
};
/// The blocks of a launch.
enum class Blocks {
  kAlone,
  kPairs,   ///< clusters of two that know nothing of each other
  kShared,  ///< clusters of two, each of whose blocks fills half of a stage of both
};

struct Ring {
  alignas(128) std::byte stage[kDepth][kStageBytes];
  alignas(8) std::uint64_t full[kDepth];
  alignas(8) std::uint64_t empty[kDepth];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ std::uint32_t address_of(const void* at) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(at)); }

__device__ void arrive_at_ordered(std::uint32_t barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ void wait_ordered(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ENDED;\nbra AGAIN;\nENDED:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

template <Fill kFill, Leave kLeave, Await kAwait, Blocks kPlace>
struct RingPattern {
  static constexpr unsigned kFullArrivals = kFill == Fill::kStores      ? kProducers * 32
                                            : kFill == Fill::kTwoArrive ? 2
                                                                        : 1;
  static constexpr bool kEach = kLeave == Leave::kEachLane || kLeave == Leave::kEachLaneAtBoth;
  static constexpr unsigned kLeaves = kEach ? kReaders * 32 : kReaders;
  static constexpr bool kLeavesBoth =
      kLeave == Leave::kEachLaneAtBoth || kLeave == Leave::kAtBoth || kLeave == Leave::kAtBothCluster;
  static constexpr unsigned kEmptyArrivals = kLeavesBoth ? 2 * kLeaves : kLeaves;

  static __device__ void await_room(std::uint32_t barrier, unsigned parity) {
    if constexpr (kAwait == Await::kTry || kAwait == Await::kOneOnly) wait_for_phase(barrier, parity);
    if constexpr (kAwait == Await::kTest) wait_idly(barrier, parity);
    if constexpr (kAwait == Await::kTryCluster) wait_ordered(barrier, parity);
  }

  static __device__ std::byte* stage_of(Ring& ring, int stage) {
    return ring.stage[kAwait == Await::kOneOnly ? 0 : stage];
  }

  static __device__ void fill_by_stores(Ring& ring, const std::byte* from) {
    const int thread = static_cast<int>(threadIdx.x) - kReaders * 32;
    for (int round = 0; round < kRounds; ++round) {
      const int stage = round % kDepth;
      await_room(address_of(&ring.empty[stage]), static_cast<unsigned>(round / kDepth) & 1 ^ 1);
      for (int i = thread * 16; i < kStageBytes; i += kProducers * 32 * 16) {
        *reinterpret_cast<uint4*>(stage_of(ring, stage) + i) =
            *reinterpret_cast<const uint4*>(from + round * kStageBytes + i);
      }
      arrive_here(address_of(&ring.full[stage]));
    }
  }

  /// One lane of each of the producing warps.
  static __device__ void fill_by_copies(Ring& ring, const std::byte* from) {
    const int own = static_cast<int>(threadIdx.x) / 32 - kReaders;
    constexpr int kThreads = kFill == Fill::kOneThread ? 1 : 2;
    if (threadIdx.x % 32 != 0 || own >= kThreads) return;
    constexpr int kBytes = kStageBytes / kThreads;
    for (int round = 0; round < kRounds; ++round) {
      const int stage = round % kDepth;
      const std::uint32_t full = address_of(&ring.full[stage]);
      await_room(address_of(&ring.empty[stage]), static_cast<unsigned>(round / kDepth) & 1 ^ 1);
      if (kFill == Fill::kTwoArrive) arrive_expecting(full, kBytes);
      if (kFill != Fill::kTwoArrive && own == 0) arrive_expecting(full, kStageBytes);
      const std::byte* const source = from + round * kStageBytes;
      if constexpr (kPlace == Blocks::kShared) {
        constexpr int kHalf = kBytes / 2;
        const int at = own * kBytes + static_cast<int>(cluster_rank()) * kHalf;
        bulk_copy_to_all(address_of(stage_of(ring, stage) + at), source + at, kHalf, full, 3);
      } else {
        bulk_copy(address_of(stage_of(ring, stage) + own * kBytes), source + own * kBytes, kBytes, full);
      }
    }
  }

  static __device__ void leave(Ring& ring, int stage) {
    const std::uint32_t empty = address_of(&ring.empty[stage]);
    const unsigned lane = threadIdx.x % 32;
    if constexpr (kLeave == Leave::kEachLane) return arrive_here(empty);
    if constexpr (kLeave == Leave::kEachLaneAtBoth) {
      arrive_at(empty, 0);
      return arrive_at(empty, 1);
    }
    if constexpr (kLeave == Leave::kAfterAsync) {
      begin_async();
      commit_async();
      wait_async<0>();
    } else if constexpr (kLeave != Leave::kFirst) {
      __syncwarp();
    }
    if constexpr (kLeave == Leave::kAtBoth) {
      if (lane < 2) arrive_at(empty, lane);
    } else if constexpr (kLeave == Leave::kAtBothCluster) {
      if (lane < 2) arrive_at_ordered(empty, lane);
    } else if constexpr (kLeave == Leave::kAtOwnAsCluster) {
      if (lane == 0) arrive_at(empty, cluster_rank());
    } else {
      if (lane == 0) arrive_here(empty);
    }
  }

  static __device__ void run(Ring& ring, const std::byte* from, std::uint32_t* to) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kDepth; ++i) {
        init_barrier(address_of(&ring.full[i]), kFullArrivals);
        init_barrier(address_of(&ring.empty[i]), kEmptyArrivals);
      }
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    if (kPlace == Blocks::kAlone) {
      __syncthreads();
    } else {
      sync_cluster();
    }
    if (threadIdx.x >= kReaders * 32) {
      if constexpr (kFill == Fill::kStores) {
        fill_by_stores(ring, from);
      } else {
        fill_by_copies(ring, from);
      }
    } else {
      std::uint32_t sum = 0;
      for (int round = 0; round < kRounds; ++round) {
        const int stage = round % kDepth;
        wait_for_phase(address_of(&ring.full[stage]), static_cast<unsigned>(round / kDepth) & 1);
        const uint4 words = *reinterpret_cast<const uint4*>(stage_of(ring, stage) + threadIdx.x * 16);
        sum += words.x + words.y + words.z + words.w;
        asm volatile("" : "+r"(sum)::"memory");
        leave(ring, stage);
      }
      to[blockIdx.x * kReaders * 32 + threadIdx.x] = sum;
    }
    __syncwarp();
    if (kPlace != Blocks::kAlone) sync_cluster();
  }
};

#endif

template <Fill kFill, Leave kLeave, Await kAwait, Blocks kPlace>
__global__ void ring_kernel(const std::byte* from, std::uint32_t* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ Ring ring;
  RingPattern<kFill, kLeave, kAwait, kPlace>::run(ring, from, to);
#endif
}

/// Eight warps leave numbers, and each time another one adds them up. How it waits for them, and they for it:
enum class Added {
  kPassed,        ///< they pass a barrier at which it waits; it passes one at which all wait later, itself too
  kWaited,        ///< the same, but it doesn't wait at that one
  kAllWait,       ///< they pass a barrier at which it waits; all wait at another one later
  kNeverAgain,    ///< as kPassed, but each turn has memory of its own
  kArrivals,      ///< each thread arrives at a barrier in memory for whose phase it waits; and it at another, for them
  kNobodyPasses,  ///< all wait at both barriers
  kOneOnly,       ///< as kPassed, but both sets are the same bytes, of which only every other turn is waited for
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Added kAdded>
struct SumsPattern {
  static constexpr int kThreads = 256;
  static constexpr int kSets = kAdded == Added::kNeverAgain ? kRounds : 2;
  static constexpr bool kPasses = kAdded == Added::kPassed || kAdded == Added::kNeverAgain || kAdded == Added::kOneOnly;
  struct Shared {
    std::uint32_t left[kSets][kThreads];
    std::uint64_t full[2];
    std::uint64_t added[2];
  };

  static __device__ void await_added(Shared& shared, int turn, int set) {
    const bool added_last = static_cast<int>(threadIdx.x) / 32 == (turn - 2) % 8;
    if (kPasses) wait_at<3>(set, kThreads + 32);
    if (kAdded == Added::kWaited && !added_last) wait_at<3>(set, kThreads);
    if (kAdded == Added::kAllWait || kAdded == Added::kNobodyPasses) wait_at<3>(set, kThreads);
    if (kAdded == Added::kArrivals)
      wait_for_phase(address_of(&shared.added[set]), static_cast<unsigned>(turn / 2 - 1) & 1);
  }
  static __device__ void say_left(Shared& shared, int turn, int set, bool adds) {
    if constexpr (kAdded == Added::kArrivals) {
      arrive_here(address_of(&shared.full[set]));
      if (adds) wait_for_phase(address_of(&shared.full[set]), static_cast<unsigned>(turn / 2) & 1);
    } else if (adds || kAdded == Added::kNobodyPasses) {
      wait_at<1>(set, kThreads);
    } else {
      pass_by<1>(set, kThreads);
    }
  }
  static __device__ void say_added(Shared& shared, int set) {
    if (kPasses) pass_by<3>(set, kThreads + 32);
    if (kAdded == Added::kWaited) pass_by<3>(set, kThreads);
    if (kAdded == Added::kArrivals) arrive_here(address_of(&shared.added[set]));
  }

  static __device__ void run(Shared& shared, const std::byte* from, std::uint32_t* to) {
    if (threadIdx.x == 0) {
      for (int set = 0; set < 2; ++set) {
        init_barrier(address_of(&shared.full[set]), kThreads);
        init_barrier(address_of(&shared.added[set]), 32);
      }
    }
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int turn = 0; turn < kRounds; ++turn) {
      const int set = turn % 2;
      const bool adds = static_cast<int>(threadIdx.x) / 32 == turn % 8;
      const auto value = static_cast<std::uint32_t>(from[turn * kThreads + static_cast<int>(threadIdx.x)]);
      std::uint32_t* const left = shared.left[kAdded == Added::kOneOnly ? 0 : turn % kSets];
      if (turn >= 2) await_added(shared, turn, set);
      left[threadIdx.x] = value;
      say_left(shared, turn, set, adds);
      if (!adds) continue;
      std::uint32_t sum = 0;
      for (int warp = 0; warp < 8; ++warp) sum += left[warp * 32 + lane];
      say_added(shared, set);
      to[(static_cast<int>(blockIdx.x) * kRounds + turn) * 32 + lane] = sum;
    }
  }
};

#endif

template <Added kAdded>
__global__ void sums_kernel(const std::byte* from, std::uint32_t* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ typename SumsPattern<kAdded>::Shared shared;
  SumsPattern<kAdded>::run(shared, from, to);
#endif
}

/// Four warps of a block's eight hand numbers to each other through two stages and meet at a named barrier after each,
/// as the other four do at theirs; then all write numbers, meet and read what the other part wrote.
enum class Parts {
  kEven,
  kUneven,     ///< one part has fewer stages, and meets less often
  kOneStage,   ///< as kEven, but both stages are the same bytes: numbers are overwritten while they are read
  kNoMeeting,  ///< as kEven, but all don't meet before they read what the other part wrote
};

template <Parts kParts>
__global__ void parts_kernel(const std::byte* from, std::uint32_t* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kThreads = 128;  // of a part
  constexpr int kNumbers = 8;    // that each thread writes at the end
  __shared__ std::uint32_t staged[2][2][kThreads];
  __shared__ std::uint32_t sums[2][kNumbers][kThreads];
  const int part = static_cast<int>(threadIdx.x) / kThreads;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const auto meet = [part] { asm volatile("bar.sync %0, %1;\n" ::"r"(part + 1), "n"(kThreads) : "memory"); };
  const auto value = [&](int round) { return static_cast<std::uint32_t>(from[round * kThreads + thread]); };
  const int rounds = kParts == Parts::kUneven && part == 0 ? kRounds / 3 : kRounds;
  std::uint32_t sum = 0;
  staged[0][part][thread] = value(0);
  meet();
  for (int round = 0; round < rounds; ++round) {
    const int set = kParts == Parts::kOneStage ? 0 : round % 2;
    const int next = kParts == Parts::kOneStage ? 0 : 1 - set;
    if (round + 1 < rounds) staged[next][part][thread] = value(round + 1);
    sum += staged[set][part][kThreads - 1 - thread];
    meet();
  }
  std::uint32_t total = 0;
  for (int turn = 0; turn < 2; ++turn) {  // twice, so that what is read too early is the same
    __syncthreads();
    for (int i = 0; i < kNumbers; ++i) sums[part][i][thread] = sum * kRounds / static_cast<unsigned>(rounds);
    if (kParts != Parts::kNoMeeting || turn == 0) __syncthreads();
    total = 0;
    for (int i = 0; i < kNumbers; ++i) total += sums[1 - part][i][thread];
    asm volatile("" : "+r"(total)::"memory");
  }
  to[blockIdx.x * 2 * kThreads + threadIdx.x] = total;
#endif
}

/// Each block of a cluster of two sends numbers to both; a barrier of each counts their bytes.
template <bool kWaits>
__global__ void sends_kernel(const std::byte* from, std::uint32_t* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kThreads = 256;
  __shared__ std::uint32_t got[2][kThreads];
  __shared__ std::uint64_t arrived;
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t barrier = address_of(&arrived);
  if (thread == 0) {
    init_barrier(barrier, 1);
    arrive_expecting(barrier, sizeof(got));
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  sync_cluster();
  for (unsigned rank = 0; rank < 2; ++rank) {
    asm volatile(
        "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %3;\n"
        "mapa.shared::cluster.u32 counter, %1, %3;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %2, [counter];\n}\n" ::"r"(
            address_of(&got[cluster_rank()][thread])),
        "r"(barrier), "r"(static_cast<std::uint32_t>(from[thread])), "r"(rank)
        : "memory");
  }
  std::uint32_t early = 0;
  if (!kWaits) early = *const_cast<volatile std::uint32_t*>(&got[0][kThreads - 1 - thread]);
  wait_for_phase(barrier, 0);
  const std::uint32_t sum = got[0][kThreads - 1 - thread] + got[1][kThreads - 1 - thread];
  to[static_cast<int>(blockIdx.x) * kThreads + thread] = 4 * sum + (early == 12345U ? 1 : 0);
  sync_cluster();
#endif
}

using Kernel = void (*)(const std::byte*, std::uint32_t*);
struct Pattern {
  const char* name;
  bool is_ordered;
  Kernel kernel;
  unsigned threads;
  bool has_clusters;
  std::size_t words;  ///< of a block's results
  std::uint32_t expected;
};
template <Fill kFill, Leave kLeave, Await kAwait, Blocks kPlace = Blocks::kAlone>
constexpr Pattern ring(const char* name, bool is_ordered = true) {
  constexpr unsigned kThreads = (kReaders + kProducers) * 32;
  constexpr std::uint32_t kSum = kRounds * 4U * 0x03030303U;
  constexpr bool kClusters = kPlace != Blocks::kAlone;
  return {name, is_ordered, ring_kernel<kFill, kLeave, kAwait, kPlace>, kThreads, kClusters, kReaders * 32, kSum};
}
template <Added kAdded>
constexpr Pattern sums(const char* name, bool is_ordered = true) {
  return {name, is_ordered, sums_kernel<kAdded>, 256, false, kRounds * 32, 8 * 3};
}
template <Parts kParts>
constexpr Pattern parts(const char* name, bool is_ordered = true) {
  return {name, is_ordered, parts_kernel<kParts>, 256, false, 256, 8 * kRounds * 3};
}

constexpr Pattern kPatterns[] = {
    ring<Fill::kStores, Leave::kEachLane, Await::kTry>("stores"),
    ring<Fill::kStores, Leave::kAfterSync, Await::kTry>("stores-first-lane"),
    ring<Fill::kStores, Leave::kAfterSync, Await::kOneOnly>("stores-unordered", false),
    ring<Fill::kOneThread, Leave::kEachLane, Await::kTest>("copies"),
    ring<Fill::kTwo, Leave::kEachLane, Await::kTry>("copies-of-two"),
    ring<Fill::kTwo, Leave::kAfterSync, Await::kTest>("copies-first-lane"),
    ring<Fill::kTwo, Leave::kAfterAsync, Await::kTry>("copies-after-async"),
    ring<Fill::kOneThread, Leave::kFirst, Await::kTry>("copies-first-lane-at-once-unordered", false),
    ring<Fill::kOneThread, Leave::kEachLane, Await::kOneOnly>("copies-unordered", false),
    ring<Fill::kTwo, Leave::kEachLane, Await::kTest, Blocks::kPairs>("cluster-copies"),
    ring<Fill::kTwo, Leave::kAfterSync, Await::kTest, Blocks::kPairs>("cluster-copies-first-lane"),
    ring<Fill::kOneThread, Leave::kAtOwnAsCluster, Await::kTry, Blocks::kPairs>("cluster-copies-own-barrier"),
    ring<Fill::kOneThread, Leave::kEachLaneAtBoth, Await::kTry, Blocks::kShared>("cluster-multicast-each-lane"),
    ring<Fill::kOneThread, Leave::kAtBoth, Await::kTry, Blocks::kShared>("cluster-multicast"),
    ring<Fill::kOneThread, Leave::kAtBothCluster, Await::kTryCluster, Blocks::kShared>("cluster-multicast-ordered"),
    ring<Fill::kOneThread, Leave::kEachLaneAtBoth, Await::kOneOnly, Blocks::kShared>("cluster-multicast-unordered",
                                                                                     false),
    {"cluster-sends", true, sends_kernel<true>, 256, true, 256, 8 * 3},
    {"cluster-sends-unordered", false, sends_kernel<false>, 256, true, 256, 8 * 3},
    parts<Parts::kEven>("parts-even"),
    parts<Parts::kUneven>("parts-uneven"),
    parts<Parts::kOneStage>("parts-unordered", false),
    parts<Parts::kNoMeeting>("parts-all-unordered", false),
    sums<Added::kPassed>("named-twice"),
    sums<Added::kWaited>("named-once"),
    sums<Added::kAllWait>("named-all-wait"),
    sums<Added::kNeverAgain>("named-never-again"),
    sums<Added::kNobodyPasses>("named-nobody-passes"),
    sums<Added::kArrivals>("arrivals"),
    sums<Added::kOneOnly>("named-unordered", false),
};

cudaError_t launch(const Pattern& pattern, const std::byte* from, std::uint32_t* to) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 2;
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(pattern.threads);
  config.attrs = &cluster;
  config.numAttrs = pattern.has_clusters ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, pattern.kernel, from, to);
  return error != cudaSuccess ? error : cudaDeviceSynchronize();
}

int run(const Pattern& pattern) {
  constexpr std::size_t kInput = std::size_t{kRounds} * kStageBytes;
  constexpr std::size_t kOutput = std::size_t{kBlocks} * kRounds * 32 * 4;  // words: enough for both kinds
  std::byte* from = nullptr;
  std::uint32_t* to = nullptr;
  std::uint32_t* host = nullptr;
  cudaError_t error = cudaMalloc(&from, kInput);
  if (error == cudaSuccess) error = cudaMalloc(&to, kOutput * 4);
  if (error == cudaSuccess) error = cudaMallocHost(&host, kOutput * 4);
  if (error == cudaSuccess) error = cudaMemset(from, 3, kInput);
  if (error == cudaSuccess) error = cudaMemset(to, 0, kOutput * 4);
  if (error == cudaSuccess) error = launch(pattern, from, to);
  if (error == cudaSuccess) error = cudaMemcpy(host, to, kOutput * 4, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", pattern.name, cudaGetErrorString(error));
    return 1;
  }
  for (std::size_t i = 0; i < kBlocks * pattern.words; ++i) {
    if (host[i] == pattern.expected) continue;
    std::fprintf(stderr, "%s: result %zu is %u, not %u\n", pattern.name, i, host[i], pattern.expected);
    return 1;
  }
  (void)cudaFree(from);
  (void)cudaFree(to);
  (void)cudaFreeHost(host);
  return 0;
}

}  // namespace
}  // namespace vernier::cuda

int main(int argc, char** argv) {
  using vernier::cuda::kPatterns;
  for (const auto& pattern : kPatterns) {
    if (argc < 2) std::printf("%s %s\n", pattern.name, pattern.is_ordered ? "ordered" : "unordered");
    if (argc == 2 && std::strcmp(argv[1], pattern.name) == 0) return vernier::cuda::run(pattern);
  }
  if (argc < 2) return 0;
  std::fprintf(stderr, "usage: racecheck_patterns [PATTERN]\n");
  return 2;
}
