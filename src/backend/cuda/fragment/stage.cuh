// Packed weights to tensor-core fragments: what a warp loads at a time (a stage) and how a lane makes exact bf16
// numbers of its bytes. The only place, beside decode_unit.cuh, that knows what codes look like.
//
// Every stage struct has: kUnits, units loaded together; load(); decode(), the four fragments of one unit; and
// kGridCols, columns under one scale of a grid (0: none). Where values are sums of two bf16 numbers, decode_rest()
// gives the smaller ones; where of three, decode_last() the smallest.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

/// Weights are read once: they must not push activations out of the caches.
__device__ __forceinline__ uint4 load_stream(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
__device__ __forceinline__ uint2 load_stream_half(const void* from) {
  uint2 value;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n" : "=r"(value.x), "=r"(value.y) : "l"(from));
  return value;
}

/// a * b of bf16 pairs, each rounded once; subnormal numbers count. (mul.bf16x2 would need sm_90.)
__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000U));
  return product;
}

/// The word of piece i.
__device__ __forceinline__ std::uint32_t word_of(const uint4& piece, int i) {
  return i == 0 ? piece.x : i == 1 ? piece.y : i == 2 ? piece.z : piece.w;
}

/// A warp's place in a weight.
struct TileCursor {
  const std::byte* codes;   ///< of the tile
  const std::byte* scales;  ///< of the tile: packed block scales
  int units;                ///< of a row
  int lane;
};

template <Packing kPacking>
__device__ __forceinline__ TileCursor tile_cursor(const WeightRef& w, int tile, int lane) {
  const std::int64_t chunks = (w.units + kChunkUnits - 1) / kChunkUnits;
  if constexpr (has_groups(kPacking)) {
    return {w.codes + tile * chunks * group_shape(kPacking).chunk_bytes(), nullptr, w.units, lane};
  }
  return {w.codes + std::int64_t{tile} * w.units * unit_bytes(kPacking),
          w.scales + tile * chunks * chunk_scale_bytes(kPacking), w.units, lane};
}

/// 4-bit codes: a chunk at a time, or one unit. E2M1's bits as bf16 are 2^-126 times its value; one multiplication by
/// the block scale, whose exponent the packing has raised, makes the weight times WeightRef::rescale's inverse,
/// exactly.
template <Packing kPacking, int kUnitsAtOnce>
struct CodedStage {
  static constexpr int kUnits = kUnitsAtOnce;
  static constexpr int kGridCols = 0;
  static constexpr int kGroupCols = 0;
  uint4 codes[kUnits];
  uint2 scales;

  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (unit + i < at.units) codes[i] = load_stream(at.codes + (unit + i) * kPieceBytes + at.lane * 16);
    }
    constexpr int kLanes = scale_cols(kPacking) / 16;  // that share scales
    const std::byte* from = at.scales + unit / kChunkUnits * chunk_scale_bytes(kPacking) + at.lane / kLanes * 8;
    if constexpr (kUnits == 1) {
      scales.x = *reinterpret_cast<const std::uint16_t*>(from + unit % kChunkUnits * 2);
    } else {
      scales = load_stream_half(from);
    }
  }

  __device__ __forceinline__ void decode(int i, std::uint32_t scale_bias, FragmentA (&out)[4]) const {
    // Bytes 2i and 2i + 1 into the low bytes of the halves, then to bf16 bits.
    const std::uint32_t spread = __byte_perm(i < 2 ? scales.x : scales.y, 0, i % 2 == 0 ? 0x4140 : 0x4342);
    constexpr std::uint32_t kStep = kPacking == Packing::kE2M1ByE4M3 ? 16 : 128;
    const std::uint32_t pair = spread * kStep + scale_bias;
    const std::uint32_t low = __byte_perm(pair, 0, 0x1010);   // row g
    const std::uint32_t high = __byte_perm(pair, 0, 0x3232);  // row g + 8
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
      const std::uint32_t w = word_of(codes[i], fragment);
      out[fragment].word[0] = multiply_pair(w & 0x81C081C0, low);
      out[fragment].word[1] = multiply_pair((w << 3) & 0x81C081C0, high);
      out[fragment].word[2] = multiply_pair(((w << 6) & 0x01C001C0) | ((w << 1) & 0x80008000), low);
      out[fragment].word[3] = multiply_pair(((w >> 3) & 0x01C001C0) | ((w << 2) & 0x80008000), high);
    }
  }
};

/// E4M3: its bits as bf16 are 2^-120 times its value.
template <int kGrid, int kUnitsAtOnce>
struct ByteStage {
  static constexpr int kUnits = kUnitsAtOnce;
  static constexpr int kGridCols = kGrid;
  static constexpr int kGroupCols = 0;
  uint4 codes[kUnits][2];

  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (unit + i >= at.units) continue;
      const std::byte* from = at.codes + (unit + i) * (2 * kPieceBytes) + at.lane * 16;
      codes[i][0] = load_stream(from);
      codes[i][1] = load_stream(from + kPieceBytes);
    }
  }

  static __device__ __forceinline__ void decode_word(std::uint32_t w, std::uint32_t& first, std::uint32_t& second) {
    constexpr std::uint32_t kPower = 0x7B807B80;  // 2^120
    first = multiply_pair(((w << 8) & 0x80008000) | ((w << 4) & 0x07F007F0), kPower);
    second = multiply_pair((w & 0x80008000) | ((w >> 4) & 0x07F007F0), kPower);
  }

  __device__ __forceinline__ void decode(int i, std::uint32_t, FragmentA (&out)[4]) const {
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
      const uint4& piece = codes[i][fragment / 2];
      FragmentA& a = out[fragment];
      decode_word(word_of(piece, fragment % 2 * 2), a.word[0], a.word[2]);
      decode_word(word_of(piece, fragment % 2 * 2 + 1), a.word[1], a.word[3]);
    }
  }
};

/// Numbers as they are: kPieces pieces a unit.
template <int kPieces>
struct PieceStage {
  static constexpr int kUnits = 1;
  static constexpr int kGridCols = 0;
  static constexpr int kGroupCols = 0;
  uint4 codes[kPieces];

  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      codes[i] = load_stream(at.codes + unit * (kPieces * kPieceBytes) + i * kPieceBytes + at.lane * 16);
  }
};

struct PlainStage : PieceStage<4> {
  __device__ __forceinline__ void decode(int, std::uint32_t, FragmentA (&out)[4]) const {
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
      out[fragment] = {{codes[fragment].x, codes[fragment].y, codes[fragment].z, codes[fragment].w}};
    }
  }
};

/// f16: a bf16 number of the upper eight significant bits, and one of the others.
struct HalfStage : PlainStage {
  __device__ __forceinline__ void decode(int, std::uint32_t, FragmentA (&out)[4]) const { split(0, out); }
  __device__ __forceinline__ void decode_rest(int, FragmentA (&out)[4]) const { split(1, out); }

 private:
  __device__ __forceinline__ void split(int term, FragmentA (&out)[4]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t pair = word_of(codes[i / 4], i % 4);
      const float low = __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
      const float high = __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
      const std::uint32_t upper = pack_upper_halves(low, high);
      out[i / 4].word[i % 4] = term == 0 ? upper
                                         : pack_upper_halves(__fsub_rn(low, __uint_as_float(upper << 16)),
                                                             __fsub_rn(high, __uint_as_float(upper & 0xFFFF0000)));
    }
  }
};

/// A fragment of F32, two pieces, as the three fragments whose sum it is.
struct SplitFragment {
  FragmentA term[3];
  __device__ __forceinline__ SplitFragment(const uint4& first, const uint4& second) {
    const uint4 piece[2] = {first, second};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int word = i % 2 * 2;
      const Bf16Pairs pairs =
          split_pair(__uint_as_float(word_of(piece[i / 2], word)), __uint_as_float(word_of(piece[i / 2], word + 1)));
#pragma unroll
      for (int t = 0; t < 3; ++t) term[t].word[i] = pairs.term[t];
    }
  }
};

struct FullStage : PieceStage<8> {
  __device__ __forceinline__ void decode(int, std::uint32_t, FragmentA (&out)[4]) const { split(0, out); }
  __device__ __forceinline__ void decode_rest(int, FragmentA (&out)[4]) const { split(1, out); }
  __device__ __forceinline__ void decode_last(int, FragmentA (&out)[4]) const { split(2, out); }

 private:
  __device__ __forceinline__ void split(int term, FragmentA (&out)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = SplitFragment(codes[2 * i], codes[2 * i + 1]).term[term];
  }
};

template <class Stage>
concept HasRest = requires(const Stage& stage, FragmentA (&out)[4]) {
  stage.decode_rest(0, out);
};
template <class Stage>
concept HasLast = requires(const Stage& stage, FragmentA (&out)[4]) {
  stage.decode_last(0, out);
};
/// Calls use(fragments) with the fragments of each term of unit i, the smallest first.
template <class Stage, class Use>
__device__ __forceinline__ void decode_terms(const Stage& stage, int i, std::uint32_t scale_bias, Use use) {
  FragmentA a[4];
  if constexpr (HasLast<Stage>) {
    stage.decode_last(i, a);
    use(a);
  }
  if constexpr (HasRest<Stage>) {
    stage.decode_rest(i, a);
    use(a);
  }
  stage.decode(i, scale_bias, a);
  use(a);
}

template <Packing kPacking>
struct StageOf {
  using Type = CodedStage<kPacking, kChunkUnits>;
};
template <>
struct StageOf<Packing::kE4M3> {
  using Type = ByteStage<0, 2>;
};
template <>
struct StageOf<Packing::kE4M3ByGrid> {
  using Type = ByteStage<kGridCols, 2>;
};
template <>
struct StageOf<Packing::kBF16> {
  using Type = PlainStage;
};
template <>
struct StageOf<Packing::kF16> {
  using Type = HalfStage;
};
template <>
struct StageOf<Packing::kF32> {
  using Type = FullStage;
};

/// The same, one unit at a time.
template <Packing kPacking>
struct UnitStageOf {
  using Type = CodedStage<kPacking, 1>;
};
template <>
struct UnitStageOf<Packing::kE4M3> {
  using Type = ByteStage<0, 1>;
};
template <>
struct UnitStageOf<Packing::kE4M3ByGrid> {
  using Type = ByteStage<kGridCols, 1>;
};
template <>
struct UnitStageOf<Packing::kBF16> {
  using Type = PlainStage;
};
template <>
struct UnitStageOf<Packing::kF16> {
  using Type = HalfStage;
};
template <>
struct UnitStageOf<Packing::kF32> {
  using Type = FullStage;
};

/// Bytes through which a row's grid scales are found: [.., cols / 128] of fp32.
__device__ __forceinline__ const float* grid_row(const WeightRef& w, int row) {
  return reinterpret_cast<const float*>(w.scales + (w.first_row + row) / w.scale_block_rows * w.scale_stride);
}

}  // namespace vernier::cuda
