// Products of the experts of a lone token on Hopper. All that a block reads is known once its experts are: each warp
// has a ring in shared memory for itself (as in linear/narrow_ring.cuh), deep enough that most of its weights are on
// their way at once, and those of down before its input is there. Blocks have few registers and not much shared memory,
// so that down's find room beside those of gate and up, and these beside the router's.
//
// Sums are those of few_product.cuh, to the bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/experts/few_work.cuh"
#include "backend/cuda/fragment/ring_chunk.cuh"
#include "backend/cuda/linear/product_job.cuh"

namespace vernier::cuda {

constexpr int kSingleWarps = 16;
constexpr int kSingleThreads = kSingleWarps * 32;
constexpr int kMostSingleTiles = 30;  ///< of a block: the last warp looks them up, the others finish their rows

/// How a row's columns are cut: segments that are not empty, of whole chunks.
struct SingleCut {
  int units = 0;
  int chunks = 0;
  int segments = 0;
  int part_of_segment = 0;              ///< 2^16 / segments, rounded up
  int first_chunk[kSegments + 1] = {};  ///< of each segment, and the end

  explicit SingleCut(int cols)
      : units((cols + kUnitCols - 1) / kUnitCols),
        chunks((units + kChunkUnits - 1) / kChunkUnits),
        segments(std::min(chunks, kSegments)),
        part_of_segment((0x10000 + segments - 1) / segments) {
    for (int i = 0; i <= segments; ++i) first_chunk[i] = chunks * i / segments;
  }
};

/// A block's items are segments of its row tiles, dealt out to the warps in one piece each.
VN_HOST_DEVICE constexpr int first_item(int items, int warp) { return items * warp / kSingleWarps; }

/// Chunks that a warp has at most, of so many row tiles of a block.
inline int most_chunks(const SingleCut& cut, int tiles) {
  const int items = tiles * cut.segments;
  int most = 0;
  for (int warp = 0; warp < kSingleWarps; ++warp) {
    int chunks = 0;
    for (int i = first_item(items, warp); i < first_item(items, warp + 1); ++i) {
      chunks += cut.first_chunk[i % cut.segments + 1] - cut.first_chunk[i % cut.segments];
    }
    most = std::max(most, chunks);
  }
  return most;
}

/// A row tile that a block multiplies.
struct alignas(16) SingleTile {
  const std::byte* codes;      ///< null: its expert is none that is known
  const std::byte* scales;     ///< of the tile, or a grid
  const std::uint16_t* input;  ///< the row of bf16 that it meets, if that comes through the ring
  std::uint32_t bias;          ///< of its scales
  int expert;
};

/// What a warp's ring holds at a time: a chunk's codes and scales, and perhaps the columns of the input that they meet.
template <Packing kPacking, bool kHasInput>
struct SingleStage {
  static constexpr int kCodeBytes = kChunkUnits * unit_bytes(kPacking);
  static constexpr int kScaleBytes = chunk_scale_bytes(kPacking);
  static constexpr int kInput = kCodeBytes + kScaleBytes;
  static constexpr int kBytes = kInput + (kHasInput ? kChunkCols * 2 : 0);
};

/// Shared memory of a block, in bytes: the rings, then these.
struct SingleMemory {
  int partials = 0;  ///< [tile][segment][row]
  int tiles = 0;
  int grid = 0;  ///< [tile][row]: bytes to where the row's scales are in its grid
  int barriers = 0;
  int depth = 0;  ///< of a ring, in stages
  int rest = 0;   ///< what else the kernel has, from here on
  int size = 0;

  /// The deepest rings of use that `most` has room for; no ring where it has none.
  SingleMemory(const SingleCut& cut, int most_tiles, int stage_bytes, int rest_bytes, std::size_t most) {
    const int rows = most_tiles * kTileRows;
    for (depth = most_chunks(cut, most_tiles); depth > 0; --depth) {
      partials = kSingleWarps * depth * stage_bytes;
      tiles = partials + rows * cut.segments * static_cast<int>(sizeof(float));
      grid = tiles + most_tiles * static_cast<int>(sizeof(SingleTile));
      barriers = grid + rows * static_cast<int>(sizeof(int));
      rest = (barriers + kSingleWarps * depth * 8 + 15) / 16 * 16;
      size = rest + rest_bytes;
      if (static_cast<std::size_t>(size) <= most) return;
    }
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Where a block's tile comes from.
struct SinglePlace {
  const MatrixRef* table;  ///< [experts]
  int expert;
  int tile;
  const std::uint16_t* input;
};

/// What follows a row's sum, as in finish_product(), but read ahead of it.
struct SingleFinish {
  const float* factors = nullptr;
  const float* biases = nullptr;
  float rescale = 1.0F;
  float factor = 1.0F;
  float bias = 0.0F;
  bool divides = false;

  __device__ __forceinline__ void begin(const MatrixRef& matrix) {
    factors = matrix.weight.row_factors;
    biases = matrix.bias;
    rescale = matrix.weight.rescale;
    factor = matrix.weight.factor;
    divides = matrix.weight.divides;
  }
  __device__ __forceinline__ void read(int row) {
    if (factors != nullptr) factor = __ldg(factors + row);
    if (biases != nullptr) bias = __ldg(biases + row);
  }
  [[nodiscard]] __device__ __forceinline__ float value(float sum) const {
    const float scaled = sum * rescale;
    const float product = divides ? __fdiv_rn(scaled, factor) : __fmul_rn(scaled, factor);
    return biases != nullptr ? __fadd_rn(product, bias) : product;
  }
};

/// The products of a block by one of its warps. Without kHasInput all tiles meet the row of bf16 at `input`.
template <Packing kPacking, bool kHasInput>
struct SingleProduct {
  using Stage = SingleStage<kPacking, kHasInput>;
  static constexpr bool kHasGrid = RingChunk<kPacking>::kGridCols > 0;
  const SingleCut& cut;
  SingleTile* tiles;  ///< in shared memory
  float* partials;
  int* grid;
  std::uint32_t stages;    ///< the warp's ring
  std::uint32_t barriers;  ///< one a stage
  std::uint32_t input;
  int depth;
  int items;  ///< of the block

  __device__ __forceinline__ SingleProduct(const SingleCut& of, const SingleMemory& at, unsigned char* memory,
                                           int num_tiles, int input_at)
      : cut(of),
        tiles(reinterpret_cast<SingleTile*>(memory + at.tiles)),
        partials(reinterpret_cast<float*>(memory + at.partials)),
        grid(reinterpret_cast<int*>(memory + at.grid)),
        depth(at.depth),
        items(num_tiles * of.segments) {
    const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    const auto ring = static_cast<int>(threadIdx.x) / 32 * at.depth;
    stages = shared + ring * Stage::kBytes;
    barriers = shared + at.barriers + ring * 8;
    input = shared + input_at;
    if (static_cast<int>(threadIdx.x) % 32 < depth) {
      init_barrier(barriers + threadIdx.x % 32 * 8, 1);
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
  }

  /// All threads: looks `count` tiles up, of which place_of(number) knows. The block meets afterwards.
  template <class Find>
  __device__ __forceinline__ void look_up(int count, int experts, const Find& place_of) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const bool looks = thread / 32 == kSingleWarps - 1;
    const int at = looks ? thread % 32 : kHasGrid ? thread / kTileRows : count;
    if (at >= count) return;
    const SinglePlace place = place_of(at);
    const bool known = place.expert >= 0 && place.expert < experts;
    if (looks && !known) tiles[at] = {};
    if (!known) return;
    const WeightRef& w = place.table[place.expert].weight;
    if (!looks) {  // a division of 32 bits
      const int row = min(place.tile * kTileRows + thread % kTileRows, w.rows - 1);
      const unsigned number = static_cast<unsigned>(w.first_row) + static_cast<unsigned>(row);
      grid[thread] = static_cast<int>(number / static_cast<unsigned>(w.scale_block_rows) * w.scale_stride);
      return;
    }
    const std::int64_t tile = place.tile;
    tiles[at] = {w.codes + tile * cut.units * unit_bytes(kPacking),
                 w.scales + tile * cut.chunks * chunk_scale_bytes(kPacking), place.input, w.scale_bias, place.expert};
  }

  /// A warp's way through the chunks of its items.
  struct Walk {
    int item;
    int end;
    int tile;
    int segment;
    int chunk = 0;
    int end_chunk = 0;
    [[nodiscard]] __device__ bool ended() const { return item >= end; }
  };
  [[nodiscard]] __device__ __forceinline__ Walk begin() const {
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    Walk walk = {first_item(items, warp), first_item(items, warp + 1), 0, 0};
    walk.tile = walk.item * cut.part_of_segment >> 16;
    walk.segment = walk.item - walk.tile * cut.segments;
    enter(walk);
    return walk;
  }
  __device__ __forceinline__ void leave(Walk& walk) const {
    ++walk.item;
    if (++walk.segment == cut.segments) {
      walk.segment = 0;
      ++walk.tile;
    }
  }
  __device__ __forceinline__ void enter(Walk& walk) const {
#pragma unroll 1
    while (walk.item < walk.end && tiles[walk.tile].codes == nullptr) leave(walk);
    walk.chunk = cut.first_chunk[walk.segment];
    walk.end_chunk = cut.first_chunk[walk.segment + 1];
  }
  /// True where it leaves an item.
  __device__ __forceinline__ bool step(Walk& walk) const {
    if (++walk.chunk < walk.end_chunk) return false;
    leave(walk);
    enter(walk);
    return true;
  }
  [[nodiscard]] __device__ __forceinline__ int units_at(int chunk) const {
    return min(kChunkUnits, cut.units - chunk * kChunkUnits);
  }

  /// One lane: asks for the weights of a chunk; `barrier` is the slot's.
  __device__ __forceinline__ void ask(const Walk& walk, int slot, std::uint32_t barrier) const {
    const SingleTile& tile = tiles[walk.tile];
    const int units = units_at(walk.chunk);
    const std::uint32_t to = stages + slot * Stage::kBytes;
    arrive_expecting(barrier, units * (unit_bytes(kPacking) + (kHasInput ? kUnitCols * 2 : 0)) + Stage::kScaleBytes);
    bulk_copy_stream(to, tile.codes + walk.chunk * Stage::kCodeBytes, units * unit_bytes(kPacking), barrier);
    if constexpr (Stage::kScaleBytes > 0) {
      bulk_copy_stream(to + Stage::kCodeBytes, tile.scales + walk.chunk * Stage::kScaleBytes, Stage::kScaleBytes,
                       barrier);
    }
  }
  /// The same of its input.
  __device__ __forceinline__ void ask_input(const Walk& walk, int slot, std::uint32_t barrier) const {
    bulk_copy(stages + slot * Stage::kBytes + Stage::kInput, tiles[walk.tile].input + walk.chunk * kChunkCols,
              units_at(walk.chunk) * kUnitCols * 2, barrier);
  }
  /// Fills the ring with weights, or with their input; `feed` stands then behind them.
  template <bool kInput>
  __device__ __forceinline__ void fill(Walk& feed) const {
#pragma unroll 1
    for (int slot = 0; slot < depth && !feed.ended(); ++slot) {
      if (is_elected()) {
        if constexpr (kInput) {
          ask_input(feed, slot, barriers + slot * 8);
        } else {
          ask(feed, slot, barriers + slot * 8);
        }
      }
      __syncwarp();
      step(feed);
    }
  }

  /// A lane's scales of a grid for a chunk: [row g or g + 8][half of the columns].
  struct GridScales {
    float scale[2][2];
  };
  __device__ __forceinline__ void load_grid(const Walk& walk, GridScales& scales) const {
    if constexpr (!kHasGrid) return;
    if (walk.ended()) return;
    const int units = units_at(walk.chunk);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int* const offset = grid + walk.tile * kTileRows + threadIdx.x % 32 / 4 + row * 8;
      const auto* const from = reinterpret_cast<const float*>(tiles[walk.tile].scales + *offset) + walk.chunk * 2;
      scales.scale[row][0] = __ldg(from);
      if (units > 2) scales.scale[row][1] = __ldg(from + 1);
    }
  }
  __device__ __forceinline__ void multiply_chunk(const Walk& walk, int slot, const GridScales& scales,
                                                 float (&sums)[4]) const {
    const std::uint32_t from = stages + slot * Stage::kBytes;
    const std::uint32_t bias = tiles[walk.tile].bias;
    const int units = units_at(walk.chunk);
    const std::uint32_t columns =
        (kHasInput ? from + Stage::kInput : input + walk.chunk * kChunkCols * 2) + threadIdx.x % 4 * 32;
    RingChunk<kPacking> chunk;
    chunk.load(from, from + Stage::kCodeBytes);
    float part[4] = {};  // of a tile of the grid
    float(&to)[4] = kHasGrid ? part : sums;
#pragma unroll
    for (int i = 0; i < kChunkUnits; ++i) {
      if (i >= units) break;
      const uint4 b[2] = {load_shared(columns + i * kUnitCols * 2), load_shared(columns + i * kUnitCols * 2 + 16)};
      FragmentA a[4];
      chunk.decode(i, bias, a);
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const uint4& words = b[f / 2];
        multiply_add(to, a[f], f % 2 == 0 ? FragmentB{{words.x, words.y}} : FragmentB{{words.z, words.w}});
      }
      if constexpr (kHasGrid) {
        if (i % 2 > 0 || i + 1 == units) add_scaled(scales, i / 2, part, sums);
      }
    }
  }
  static __device__ __forceinline__ void add_scaled(const GridScales& scales, int half, float (&part)[4],
                                                    float (&sums)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = __fmaf_rn(scales.scale[i / 2][half], part[i], sums[i]);
      part[i] = 0.0F;
    }
  }
  /// The warp's items, whose sums it leaves in `partials`.
  __device__ __forceinline__ void run(Walk& feed) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Walk walk = begin();
    int slot = 0;
    unsigned parity = 0;
    float sums[4] = {};
    GridScales scales;  // a chunk ahead
    load_grid(walk, scales);
#pragma unroll 1
    while (!walk.ended()) {
      const std::uint32_t barrier = barriers + slot * 8;
      const GridScales own = scales;
      if constexpr (kHasGrid) {
        Walk next = walk;
        step(next);
        load_grid(next, scales);
      }
      wait_for_phase(barrier, parity);
      multiply_chunk(walk, slot, own, sums);
      if (!feed.ended()) {
        // 0, known when the sums are: then all that was read of the stage has come back, and it may be overwritten.
        // Addresses in shared memory are below 2^31, but the compiler doesn't know.
        const std::uint32_t read = __float_as_uint(sums[0]) & barriers >> 31;
        __syncwarp();
        if (is_elected()) {
          ask(feed, slot, barrier | read);
          if constexpr (kHasInput) ask_input(feed, slot, barrier);
        }
        __syncwarp();
        step(feed);
      }
      if (++slot == depth) {
        slot = 0;
        parity ^= 1;
      }
      float* const to = partials + walk.item * kTileRows + lane / 4;
      if (!step(walk)) continue;
      if (lane % 4 == 0) {  // all columns are the same
        to[0] = sums[0];
        to[8] = sums[2];
      }
      for (float& sum : sums) sum = 0.0F;
    }
  }
  /// A row's sum over a tile's segments.
  [[nodiscard]] __device__ __forceinline__ float total(int tile, int row) const {
    const float* const from = partials + tile * cut.segments * kTileRows + row;
    float sum = from[0];
#pragma unroll
    for (int i = 1; i < kSegments; ++i) {
      if (i < cut.segments) sum = __fadd_rn(sum, from[i * kTileRows]);
    }
    return sum;
  }
};

#endif

}  // namespace vernier::cuda
