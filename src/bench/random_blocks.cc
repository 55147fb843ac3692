#include "bench/random_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "bench/random.h"
#include "format/format_list.h"

namespace vernier::bench {
namespace {

constexpr std::size_t kTileBytes = 1U << 20U;  // fits the second-level cache, so that copying it costs writes only
constexpr float kFp8Spread = 64.0F;            // E4M3 codes then use most of their range and don't saturate

template <class Code>
void put(std::byte* to, Code code) {
  std::memcpy(to, &code, sizeof(code));
}

void randomise(Random& random, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), bytes.size() - i));
  }
}

/// Root of the mean square of all codes of an element of at most 8 bits.
template <class Codec>
float code_spread() {
  double sum = 0.0;
  constexpr std::size_t kCodes = std::size_t{1} << Codec::kBits;
  for (std::size_t code = 0; code < kCodes; ++code) {
    const double value = Codec::decode(static_cast<typename Codec::Code>(code));
    sum += value * value;
  }
  return static_cast<float>(std::sqrt(sum / static_cast<double>(kCodes)));
}

/// A block scale near `target`. Codes of small floats are drawn from around 1 instead; then `outer` has the rest.
template <class Codec>
typename Codec::Code scale_code(Random& random, float target) {
  if constexpr (std::is_same_v<Codec, UE4M3Codec>) {
    return static_cast<typename Codec::Code>(0x30 + random.below(16));  // 0.5 .. 1.875
  } else if constexpr (std::is_same_v<Codec, E8M0Codec>) {
    return static_cast<typename Codec::Code>(std::lround(std::log2(target)) + 127);
  } else {
    return Codec::encode(target);
  }
}

/// The factor left for a second level by scale_code().
template <class Codec>
float outer_for(float target) {
  return std::is_same_v<Codec, UE4M3Codec> ? target / 1.2F : 1.0F;
}

/// Two numbers of a block: with the second they make the mean of its values 0.
struct Offsets {
  float scale = 0.0F;
  float minimum = 0.0F;
};

template <class F>
void put_offsets(std::byte* block, Offsets values) {
  constexpr auto kOffsets = F::f16_offsets();
  put(block + kOffsets[0], F16Codec::encode(values.scale));
  if constexpr (kOffsets.size() > 1) put(block + kOffsets[1], F16Codec::encode(values.minimum));
}

/// Mean and root mean square of the values of some blocks under the given offsets.
template <class F>
std::pair<double, double> measure(std::vector<std::byte> blocks, Offsets offsets) {
  double sum = 0.0;
  double squares = 0.0;
  std::size_t count = 0;
  std::array<float, F::kBlockValues> values;
  for (std::size_t at = 0; at + F::kBlockBytes <= blocks.size(); at += F::kBlockBytes) {
    put_offsets<F>(blocks.data() + at, offsets);
    F::decode_block(blocks.data() + at, values.data());
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
      ++count;
    }
  }
  const auto n = static_cast<double>(count);
  return {sum / n, std::sqrt(squares / n)};
}

/// Offsets under which random blocks of F have mean 0 and the spread `target`.
template <class F>
Offsets fit_offsets(const std::vector<std::byte>& blocks, float target) {
  const std::vector<std::byte> some(blocks.begin(), blocks.begin() + 256 * F::kBlockBytes);
  Offsets unit{1.0F, 0.0F};
  if constexpr (F::f16_offsets().size() > 1) {
    const double mean = measure<F>(some, {1.0F, 0.0F}).first;
    unit.minimum = static_cast<float>(-mean / measure<F>(some, {0.0F, 1.0F}).first);
  }
  const float factor = target / static_cast<float>(measure<F>(some, unit).second);
  return {unit.scale * factor, unit.minimum * factor};
}

template <class F>
void make_interleaved(Random& random, float target, BlockTile& tile) {
  tile.code_unit = F::kBlockBytes;
  tile.codes.resize(kTileBytes / F::kBlockBytes * F::kBlockBytes);
  randomise(random, tile.codes);
  if constexpr (HasCodes<F>) {
    using Scale = typename F::Scale;
    using Layout = typename F::Interleaved;
    const float wanted = target / code_spread<typename F::Element>();
    for (std::size_t at = 0; at < tile.codes.size(); at += F::kBlockBytes) {
      for (int group = 0; group < F::kBlockValues / F::kScaleValues; ++group) {
        constexpr int kWidth = sizeof(typename Scale::Code);
        put(tile.codes.data() + at + Layout::kScalesAt + group * kWidth, scale_code<Scale>(random, wanted));
      }
    }
    tile.outer = outer_for<Scale>(wanted);
  } else {
    const Offsets offsets = fit_offsets<F>(tile.codes, target);
    for (std::size_t at = 0; at < tile.codes.size(); at += F::kBlockBytes) {
      put_offsets<F>(tile.codes.data() + at, offsets);
    }
  }
}

/// Codes of whole bytes.
template <class Codec>
void make_elements(Random& random, float spread, BlockTile& tile) {
  tile.code_unit = Codec::kBits / 8;
  tile.codes.resize(kTileBytes);
  for (std::size_t at = 0; at < tile.codes.size(); at += tile.code_unit) {
    const float value = random.normal() * spread;
    if constexpr (std::is_same_v<Codec, F32Codec>) {
      put(tile.codes.data() + at, value);
    } else {
      put(tile.codes.data() + at, Codec::encode(value));
    }
  }
}

template <class F>
void make_separate(Random& random, float target, BlockTile& tile) {
  if constexpr (std::is_same_v<typename F::Scale, GridScale>) {
    make_elements<typename F::Element>(random, kFp8Spread, tile);
    tile.scale_unit = sizeof(float);
    tile.scales.resize(4096 * sizeof(float));
    for (std::size_t at = 0; at < tile.scales.size(); at += sizeof(float)) {
      put(tile.scales.data() + at, target / kFp8Spread * (1.0F + 0.25F * random.uniform()));
    }
  } else {
    using Scale = typename F::Scale;
    tile.codes.resize(kTileBytes);
    randomise(random, tile.codes);
    const float wanted = target / code_spread<typename F::Element>();
    tile.scale_unit = sizeof(typename Scale::Code);
    tile.scales.resize(65536);
    for (std::size_t at = 0; at < tile.scales.size(); at += tile.scale_unit) {
      put(tile.scales.data() + at, scale_code<Scale>(random, wanted));
    }
    tile.outer = outer_for<Scale>(wanted);
  }
}

}  // namespace

BlockTile make_tile(FormatId format, WeightLayout layout, std::int64_t cols, std::uint64_t seed) {
  Random random(seed);
  const float target = 1.0F / std::sqrt(static_cast<float>(cols));
  BlockTile tile;
  visit_format(format, [&]<class F>(std::type_identity<F>) {
    if constexpr (HasInterleaved<F>) {
      if (layout == WeightLayout::kInterleaved) return make_interleaved<F>(random, target, tile);
    }
    if constexpr (HasSeparate<F>) {
      if (layout == WeightLayout::kSeparate) return make_separate<F>(random, target, tile);
    }
    if constexpr (HasPlain<F>) {
      const bool has_outer = F::kOuterScale != OuterScaleUse::kNone;
      make_elements<typename F::Element>(random, has_outer ? kFp8Spread : target, tile);
      if (has_outer) tile.outer = target / kFp8Spread;
    }
  });
  return tile;
}

void fill_from_tile(const std::vector<std::byte>& tile, std::size_t unit, std::uint64_t seed, std::byte* to,
                    std::size_t size) {
  std::size_t from = mix(seed) % (tile.size() / unit) * unit;
  while (size > 0) {
    const std::size_t count = std::min(size, tile.size() - from);
    std::memcpy(to, tile.data() + from, count);
    to += count;
    size -= count;
    from = 0;
  }
}

}  // namespace vernier::bench
