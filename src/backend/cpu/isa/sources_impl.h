// How rows of each kind of format are read: which value each lane and step of a segment gets, and its scale. Derived
// from the format headers: no format is named here. See kernels.h for the contract and this folder's rules.
//
// A source reads chunks of kValues values, that is kSegments segments of kSteps steps, kChunkBytes apart; the last of a
// row is completed with zeros by copying it. It states
//   value_at(step, lane)   which value of the chunk that is
//   Chunk(bytes)           a chunk's codes; step<i>() the values of step i, but for kFactor, which inputs get
//   fill_scales(...)       expands the scales of some chunks, kScales each; those beyond a row are finite
//   scale<segment>(scales) the scales of the lanes
//   kHasMinimums           values are code * scale + minimum; minimums(scales): 16, for so many equal parts
//   kAnyCodeIsFinite       bytes behind a row are numbers too, so its last chunk is read in place
//   Watch                  notices codes that Chunk misreads and that make a row NaN
#pragma once

#include "backend/cpu/isa/decode_impl.h"
#include "backend/cpu/isa/kernels.h"

namespace {

using vernier_isa::WeightRows;

struct NoWatch {
  void see(const std::byte*) {}
  [[nodiscard]] static bool seen() { return false; }
};

/// For sources without scales.
struct Unscaled {
  static constexpr int kScales = 0;
  static void fill_scales(const WeightRows&, std::int64_t, std::int64_t, std::int64_t, float*) {}
  template <int kSegment>
  static Lanes scale(const float*) {
    return Lanes::all(1.0F);
  }
};

const std::byte* row_scales(const WeightRows& rows, std::int64_t row) {
  const std::int64_t at = rows.first_row + row;
  return rows.scales + (rows.scale_block_rows == 1 ? at : at / rows.scale_block_rows) * rows.scale_stride;
}

/// The scale of every kStep-th of `count` values of a row under a grid.
template <int kStep>
void expand_grid(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count, float* scales) {
  const std::byte* codes = row_scales(rows, row);
  std::int64_t tile = begin / rows.scale_block_cols;
  std::int64_t tile_end = tile * rows.scale_block_cols;
  float scale = 0.0F;
  for (std::int64_t k = begin; k < begin + count; k += kStep) {
    if (k >= tile_end) {
      scale = rows.grid_scale(codes, tile++);
      tile_end += rows.scale_block_cols;
    }
    *scales++ = scale;
  }
}

/// Expands scale codes: kTogether at each of some places `stride` bytes apart. Writes whole vectors.
template <class Codec, int kTogether>
void expand_scales(const std::byte* codes, std::int64_t stride, std::int64_t places, float* scales) {
  constexpr int kBytes = kTogether * static_cast<int>(sizeof(typename Codec::Code));
  constexpr int kPlaces = 16 / kTogether;
  for (std::int64_t place = 0; place < places; place += kPlaces, scales += 16) {
    // Put together in registers: a vector can't be loaded quickly from what was stored in pieces.
    std::uint64_t words[2 * sizeof(typename Codec::Code)] = {};
    const auto join = [&](int i) {
      std::uint64_t piece = 0;
      __builtin_memcpy(&piece, codes + (place + i) * stride, kBytes);
      words[i * kBytes / 8] |= piece << (i * kBytes % 8 * 8);
    };
    if (place + kPlaces <= places) {
      for (int i = 0; i < kPlaces; ++i) join(i);
    } else {
      for (int i = 0; place + i < places; ++i) join(i);
    }
    Lanes::decode_scales<Codec>(Lanes::join_words(words)).store(scales);
  }
}

/// The bytes of the first `count` codes of 16, and zeros. L: a parameter, so that it may lack what isn't used.
template <class Codec, class L = Lanes>
auto load_first_scales(const std::byte* from, std::int64_t count) {
  if constexpr (requires { L::template load_first_scales<Codec>(from, count); }) {
    return L::template load_first_scales<Codec>(from, count);
  } else {
    constexpr std::int64_t kSize = sizeof(typename Codec::Code);
    alignas(32) std::byte bytes[16 * kSize] = {};
    __builtin_memcpy(bytes, from, static_cast<std::size_t>(count * kSize));
    return L::template load_scales<Codec>(bytes);
  }
}

/// Expands `count` scale codes that lie together.
template <class Codec>
void expand_scales(const std::byte* codes, std::int64_t count, float* scales) {
  constexpr std::int64_t kSize = sizeof(typename Codec::Code);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    Lanes::decode_scales<Codec>(Lanes::load_scales<Codec>(codes + i * kSize)).store(scales + i);
  if (i < count) {
    Lanes::decode_scales<Codec>(load_first_scales<Codec>(codes + i * kSize, count - i)).store(scales + i);
  }
}

/// 4-bit codes under block scales.
template <class F, class Layout, bool kInterleaved>
struct NibbleSource {
  using Format = F;
  using Codec = typename F::Element;
  using ScaleCodec = typename F::Scale;
  static constexpr bool kIsInterleaved = kInterleaved;
  static constexpr int kScalesAt = Layout::kScalesAt;
  static constexpr int kCodeBytes = NibbleChunk::kBytes;
  static constexpr int kPieceBytes = kInterleaved ? F::kBlockValues / 2 : kCodeBytes;
  static constexpr int kPieceStride = kInterleaved ? F::kBlockBytes : kCodeBytes;
  static constexpr int kValues = 2 * kCodeBytes;
  static constexpr int kSegments = 1;
  static constexpr int kSteps = NibbleChunk::kSteps;
  static constexpr int kChunkBytes = kCodeBytes / kPieceBytes * kPieceStride;
  static constexpr float kFactor = 1.0F;
  static constexpr int kScales = kValues / F::kScaleValues;
  static constexpr int kScaleBytes = F::kScaleValues / 2;  ///< of codes under one scale
  static constexpr bool kHasMinimums = false;
  static constexpr bool kAnyCodeIsFinite = true;
  using Watch = NoWatch;

  static constexpr int value_of_nibble(int nibble) {
    if constexpr (Layout::kNibbles == vn::NibbleOrder::kPairs) return nibble;
    const int byte = nibble / 2;
    return byte / kScaleBytes * F::kScaleValues + byte % kScaleBytes + nibble % 2 * kScaleBytes;
  }
  static constexpr int value_at(int step, int lane) { return value_of_nibble(NibbleChunk::nibble_at(step, lane)); }
  struct LaneMap {
    std::int32_t index[16];
  };
  /// Which of a chunk's scales a lane has: the same at all steps.
  static constexpr LaneMap kScaleOfLane = [] {
    LaneMap map{};
    for (int lane = 0; lane < 16; ++lane) map.index[lane] = value_at(0, lane) / F::kScaleValues;
    return map;
  }();
  static_assert([] {
    for (int i = 0; i < 16 * kSteps; ++i) {
      if (value_at(i / 16, i % 16) / F::kScaleValues != kScaleOfLane.index[i % 16]) return false;
    }
    return true;
  }());

  static constexpr std::int64_t bytes_of(std::int64_t values) {
    return kInterleaved ? values / F::kBlockValues * F::kBlockBytes : values / 2;
  }
  struct Chunk {
    using Codes = std::conditional_t<kInterleaved, NibblePieces<kPieceBytes, kPieceStride>, NibbleRun>;
    static constexpr int kOverread = Codes::kOverread;
    Codes codes;
    explicit Chunk(const std::byte* bytes) : codes(bytes + Layout::kCodesAt) {}
    template <int kStep>
    [[nodiscard]] Lanes step(const NibbleChunk::Table& table) const {
      return codes.template step<kStep>(table);
    }
  };
  static NibbleChunk::Table table() { return NibbleChunk::Table(&vn::kDecodeTable<typename F::Element>[0]); }

  static void fill_scales(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                          float* scales) {
    if constexpr (!kInterleaved) {
      constexpr std::int64_t kCodeSize = sizeof(typename F::Scale::Code);
      expand_scales<typename F::Scale>(row_scales(rows, row) + begin / F::kScaleValues * kCodeSize,
                                       count / F::kScaleValues, scales);
    } else {
      const std::byte* block = rows.codes + row * rows.row_stride + begin / F::kBlockValues * F::kBlockBytes;
      expand_scales<typename F::Scale, F::kBlockValues / F::kScaleValues>(block + Layout::kScalesAt, F::kBlockBytes,
                                                                          count / F::kBlockValues, scales);
    }
  }
  template <int kSegment>
  static Lanes scale(const float* scales) {
    return Lanes::spread<kScales>(scales, kScaleOfLane.index);
  }
};

struct NoTable {};

/// What the sources below share: 128 values of a row in whole blocks, at first in their own order.
template <int kBlockValues, int kBlockBytes>
struct ByteSource {
  static constexpr int kValues = kBlockValues > 128 ? kBlockValues : 128;
  static constexpr int kChunkBytes = kValues / kBlockValues * kBlockBytes;
  static constexpr int kSteps = 8;
  static constexpr int kSegments = kValues / 16 / kSteps;
  static constexpr float kFactor = 1.0F;
  static constexpr int value_at(int step, int lane) { return step * 16 + lane; }
  static constexpr std::int64_t bytes_of(std::int64_t values) { return values / kBlockValues * kBlockBytes; }
  static NoTable table() { return {}; }
  static constexpr bool kHasMinimums = false;
  static constexpr bool kAnyCodeIsFinite = false;
  using Watch = NoWatch;
};

/// BF16, F16 and F32.
template <class Codec>
struct FloatSource : ByteSource<1, Codec::kBits / 8>, Unscaled {
  static constexpr int value_at(int step, int lane) {
    if constexpr (std::is_same_v<Codec, vn::BF16Codec>) return step / 2 * 32 + lane * 2 + step % 2;
    return step * 16 + lane;
  }
  struct Chunk {
    static constexpr int kOverread = 0;
    const std::byte* from;
    explicit Chunk(const std::byte* bytes) : from(bytes) {}
    template <int kStep>
    [[nodiscard]] Lanes step(NoTable) const {
      if constexpr (std::is_same_v<Codec, vn::BF16Codec>) {
        return Bf16Pairs(from + kStep / 2 * 64).template step<kStep % 2>();
      } else if constexpr (std::is_same_v<Codec, vn::F16Codec>) {
        return Lanes::load_f16(from + kStep * 32);
      } else {
        static_assert(std::is_same_v<Codec, vn::F32Codec>);
        float values[16];
        __builtin_memcpy(values, from + kStep * 64, sizeof(values));
        return Lanes::load(values);
      }
    }
  };
};

/// E4M3 codes, whose scales are none, or a grid whose tiles are whole chunks of 128.
template <bool kGrid>
struct E4M3Source : ByteSource<1, 1> {
  static constexpr int kPart = 64;
  static constexpr int kPartSteps = E4M3Chunk::kSteps;
  static constexpr float kFactor = E4M3Chunk::kFactor;
  static constexpr int kScales = kGrid ? 1 : 0;
  static constexpr int value_at(int step, int lane) {
    return step / kPartSteps * kPart + E4M3Chunk::value_at(step % kPartSteps, lane);
  }
  struct Watch {
    E4M3Chunk::NanWatch parts;
    void see(const std::byte* bytes) {
      for (int i = 0; i < 128; i += kPart) parts.see(bytes + i);
    }
    [[nodiscard]] bool seen() const { return parts.seen(); }
  };
  struct Chunk {
    static constexpr int kOverread = 0;
    E4M3Chunk first;  // read here, not at each step: what a step gives may be stored in between
    E4M3Chunk second;
    explicit Chunk(const std::byte* bytes) : first(bytes), second(bytes + kPart) {}
    template <int kStep>
    [[nodiscard]] Lanes step(NoTable) const {
      if constexpr (kStep < kPartSteps)
        return first.template step<kStep>();
      else
        return second.template step<kStep - kPartSteps>();
    }
  };
  static void fill_scales(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                          float* scales) {
    if constexpr (kGrid) expand_grid<128>(rows, row, begin, count, scales);
  }
  template <int kSegment>
  static Lanes scale(const float* scales) {
    return kGrid ? Lanes::all(scales[0]) : Lanes::all(1.0F);
  }
};

/// Bytes under a grid of any tiles: each lane has the scale of its value.
template <class Codec>
struct AnyGridSource {
  static constexpr int kValues = 16;
  static constexpr int kChunkBytes = 16;
  static constexpr int kSegments = 1;
  static constexpr int kSteps = 1;
  static constexpr float kFactor = 1.0F;
  static constexpr int kScales = 16;
  static constexpr int value_at(int, int lane) { return lane; }
  static constexpr std::int64_t bytes_of(std::int64_t values) { return values; }
  static NoTable table() { return {}; }
  static constexpr bool kHasMinimums = false;
  static constexpr bool kAnyCodeIsFinite = false;
  using Watch = NoWatch;
  struct Chunk {
    static constexpr int kOverread = 0;
    const std::byte* from;
    explicit Chunk(const std::byte* bytes) : from(bytes) {}
    template <int kStep>
    [[nodiscard]] Lanes step(NoTable) const {
      return Lanes::lookup256(&vn::kDecodeTable<Codec>[0], Codes::load_bytes(from));
    }
  };
  static void fill_scales(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                          float* scales) {
    expand_grid<1>(rows, row, begin, count, scales);
    for (std::int64_t i = count; i % kValues != 0; ++i) scales[i] = 0.0F;
  }
  template <int kSegment>
  static Lanes scale(const float* scales) {
    return Lanes::load(scales);
  }
};

/// Blocks of signed bytes under a scale.
template <class F>
struct Int8Source : ByteSource<F::kBlockValues, F::kBlockBytes> {
  static_assert(F::kBlockValues == F::kScaleValues);
  using Layout = typename F::Interleaved;
  static constexpr int kSteps = F::kBlockValues / 16;
  static constexpr int kSegments = 128 / F::kBlockValues;
  static constexpr int kScales = kSegments;
  struct Chunk {
    static constexpr int kOverread = 0;
    const std::byte* from;
    explicit Chunk(const std::byte* bytes) : from(bytes) {}
    template <int kStep>
    [[nodiscard]] Lanes step(NoTable) const {
      return Lanes::load_int8(from + kStep / kSteps * F::kBlockBytes + Layout::kCodesAt + kStep % kSteps * 16);
    }
  };
  static void fill_scales(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                          float* scales) {
    const std::byte* block = rows.codes + row * rows.row_stride + begin / F::kBlockValues * F::kBlockBytes;
    expand_scales<typename F::Scale, 1>(block + Layout::kScalesAt, F::kBlockBytes, count / F::kBlockValues, scales);
  }
  template <int kSegment>
  static Lanes scale(const float* scales) {
    return Lanes::all(scales[kSegment]);
  }
};

/// 4-bit codes under scales and minimums: two blocks, of which each has 8 sub-blocks, two of them in a run of 32 bytes.
template <class F>
struct ScaleMinimumSource {
  static constexpr int kParts = F::kBlockValues / 2 / NibbleChunk::kBytes;  ///< of a block
  static constexpr int kValues = 2 * F::kBlockValues;
  static constexpr int kChunkBytes = 2 * F::kBlockBytes;
  static constexpr int kSegments = 2 * kParts * 2;  ///< of each part the low nibbles, then the high ones
  static constexpr int kSteps = NibbleChunk::kSteps / 2;
  static constexpr float kFactor = 1.0F;
  static constexpr int kScales = 32;  ///< of each block 8 scales and 8 minimums
  static constexpr bool kHasMinimums = true;
  static constexpr bool kAnyCodeIsFinite = false;
  using Watch = NoWatch;

  struct Place {
    int block;
    int sub;
    int value;  ///< of the sub-block
  };
  static constexpr Place place_of(int step, int lane) {
    const int segment = step / kSteps;
    const int nibble = NibbleChunk::nibble_at(NibbleChunk::step_of(segment % 2, step % kSteps), lane);
    const int byte = segment / 2 % kParts * NibbleChunk::kBytes + nibble / 2;
    return {segment / 2 / kParts, byte / 32 * 2 + nibble % 2, byte % 32};
  }
  static constexpr int value_at(int step, int lane) {
    const Place place = place_of(step, lane);
    return place.block * F::kBlockValues + place.sub * 32 + place.value;
  }
  struct LaneMap {
    std::int32_t index[16];
  };
  template <int kSegment>
  static constexpr LaneMap kScaleOfLane = [] {
    LaneMap map{};
    for (int lane = 0; lane < 16; ++lane) map.index[lane] = place_of(kSegment * kSteps, lane).sub;
    return map;
  }();
  static_assert([] {
    for (int i = 0; i < kValues; ++i) {
      const int step = i / 16;
      if (place_of(step, i % 16).sub != place_of(step / kSteps * kSteps, i % 16).sub) return false;
    }
    return true;
  }());

  static constexpr std::int64_t bytes_of(std::int64_t values) { return values / F::kBlockValues * F::kBlockBytes; }
  static constexpr float kWhole[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static NibbleChunk::Table table() { return NibbleChunk::Table(kWhole); }
  struct Chunk {
    static constexpr int kOverread = NibbleRun::kOverread;
    const std::byte* from;
    explicit Chunk(const std::byte* bytes) : from(bytes) {}
    template <int kStep>
    [[nodiscard]] Lanes step(const NibbleChunk::Table& table) const {
      constexpr int kSegment = kStep / kSteps;
      const std::byte* part =
          from + kSegment / 2 / kParts * F::kBlockBytes + F::kCodesAt + kSegment / 2 % kParts * NibbleChunk::kBytes;
      return NibbleRun(part).template step<NibbleChunk::step_of(kSegment % 2, kStep % kSteps)>(table);
    }
  };
  static void fill_scales(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                          float* scales) {
    const std::byte* block = rows.codes + row * rows.row_stride + begin / F::kBlockValues * F::kBlockBytes;
    for (std::int64_t i = 0; i < count; i += F::kBlockValues, block += F::kBlockBytes, scales += 16) {
      std::uint64_t codes[2];
      F::unpack_scales(block, codes);
      const Lanes factor =
          Lanes::halves(Lanes::half_to_float(vn::load_u16(block)), -Lanes::half_to_float(vn::load_u16(block + 2)));
      (factor * Lanes::from_int8(Codes::from_words(codes))).store(scales);
    }
    if (count % kValues != 0) Lanes::all(0.0F).store(scales);
  }
  template <int kSegment>
  static Lanes scale(const float* scales) {
    return Lanes::spread<8>(scales + kSegment / 2 / kParts * 16, kScaleOfLane<kSegment>.index);
  }
  static Lanes minimums(const float* scales) { return Lanes::join(scales + 8, scales + 24); }
};

/// Apart from the loops around it, lest each of them repeat it.
template <class F>
[[gnu::noinline]] void decode_blocks(const std::byte* blocks, std::int64_t values, float* out) {
  decode_interleaved<F>(blocks, nullptr, values, out);
}

/// Blocks that are decoded as a whole.
template <class F>
struct BlockSource : ByteSource<F::kBlockValues, F::kBlockBytes>, Unscaled {
  using Base = ByteSource<F::kBlockValues, F::kBlockBytes>;
  struct Chunk {
    static constexpr int kOverread = 0;
    alignas(64) float values[Base::kValues];
    explicit Chunk(const std::byte* bytes) { decode_blocks<F>(bytes, Base::kValues, values); }
    template <int kStep>
    [[nodiscard]] Lanes step(NoTable) const {
      return Lanes::load(values + kStep * 16);
    }
  };
};

}  // namespace
