#include "support/random_weight.h"

#include <cstring>
#include <memory>

#include "format/format_list.h"

namespace vernier::test {
namespace {

/// Memory of a weight. Exactly as large as needed, so that a sanitizer sees a read beyond.
struct Storage {
  std::unique_ptr<std::byte[]> codes;
  std::unique_ptr<std::byte[]> scales;
};

constexpr std::int64_t kMisalignment = 1;

std::unique_ptr<std::byte[]> poisoned(std::int64_t size) {
  auto bytes = std::make_unique<std::byte[]>(static_cast<std::size_t>(size));
  std::memset(bytes.get(), 0xFF, static_cast<std::size_t>(size));  // NaN in every format that has one
  return bytes;
}

/// A finite code of an element, of moderate size where the codec has a wide range.
template <class Codec>
typename Codec::Code random_code(Random& random) {
  if constexpr (std::is_same_v<Codec, F32Codec>) {
    return __builtin_bit_cast(std::uint32_t, random.uniform());
  } else if constexpr (std::is_same_v<Codec, BF16Codec>) {
    return BF16Codec::encode(random.uniform());
  } else if constexpr (std::is_same_v<Codec, F16Codec>) {
    return F16Codec::encode(random.uniform());
  } else {
    while (true) {
      const auto code = static_cast<typename Codec::Code>(random.below(std::uint64_t{1} << Codec::kBits));
      if (Codec::is_finite(code)) return code;
    }
  }
}

/// A legal block scale.
template <class Codec>
typename Codec::Code random_scale_code(Random& random) {
  if constexpr (std::is_same_v<Codec, E8M0Codec>) {
    return static_cast<E8M0Codec::Code>(112 + random.below(20));
  } else if constexpr (std::is_same_v<Codec, F16Codec>) {
    return F16Codec::encode(random.uniform() * (random.below(8) == 0 ? 1e-6F : 0.1F));
  } else {
    return static_cast<typename Codec::Code>(random.below(0x7F));
  }
}

template <class Code>
void put(std::byte* to, Code code) {
  std::memcpy(to, &code, sizeof(code));
}

void fill_bytes(Random& random, std::byte* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(random.below(256));
}

template <class F>
void fill_whole_codes(Random& random, std::byte* row, std::int64_t cols) {
  using Codec = typename F::Element;
  if constexpr (Codec::kBits >= 8) {
    for (std::int64_t i = 0; i < cols; ++i) put(row + i * (Codec::kBits / 8), random_code<Codec>(random));
  } else {
    fill_bytes(random, row, cols / 2);
  }
}

template <class F>
void fill_block(Random& random, std::byte* block) {
  fill_bytes(random, block, F::kBlockBytes);
  if constexpr (HasCodes<F>) {
    using Layout = typename F::Interleaved;
    for (int group = 0; group < F::kBlockValues / F::kScaleValues; ++group) {
      using Code = typename F::Scale::Code;
      put(block + Layout::kScalesAt + group * static_cast<int>(sizeof(Code)),
          random_scale_code<typename F::Scale>(random));
    }
  } else {
    for (const int offset : F::f16_offsets()) put(block + offset, random_scale_code<F16Codec>(random));
  }
}

float random_grid_scale(Random& random) { return 0.01F + 0.01F * (random.uniform() + 1.0F); }

void fill_grid_row(Random& random, DType type, std::byte* row, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (type == DType::kF32) put(row + 4 * i, random_grid_scale(random));
    if (type == DType::kBF16) put(row + 2 * i, BF16Codec::encode(random_grid_scale(random)));
    if (type == DType::kF8E8M0) put(row + i, random_scale_code<E8M0Codec>(random));
  }
}

void add_outer_scale(Random& random, const WeightSpec& spec, Weight& weight) {
  if (spec.outer == OuterKind::kNone) return;
  weight.outer.divides = spec.outer == OuterKind::kDivides;
  const std::int64_t count = spec.outer == OuterKind::kPerRow ? spec.rows : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const float factor = 0.5F + 0.1F * (random.uniform() + 1.0F);
    weight.outer.values.push_back(weight.outer.divides ? factor * 1000.0F : factor * 0.001F);
  }
}

template <class F>
void fill_separate(Random& random, const WeightSpec& spec, Weight& weight, Storage& storage) {
  constexpr bool kGrid = std::is_same_v<typename F::Scale, GridScale>;
  weight.scale_dtype = kGrid ? spec.grid_dtype : format_info(spec.format).scale_dtype;
  weight.scale_block_rows = kGrid ? spec.grid_block_rows : 1;
  weight.scale_block_cols = kGrid ? spec.grid_block_cols : F::kScaleValues;
  weight.first_row = spec.first_row;
  const std::int64_t per_row = (spec.cols + weight.scale_block_cols - 1) / weight.scale_block_cols;
  weight.scale_stride = per_row * (dtype_bits(weight.scale_dtype) / 8) + spec.row_padding;
  const std::int64_t grid_rows = (spec.first_row + spec.rows + weight.scale_block_rows - 1) / weight.scale_block_rows;
  const std::int64_t size = kMisalignment + grid_rows * weight.scale_stride - spec.row_padding;
  storage.scales = poisoned(size);
  weight.scales = storage.scales.get() + kMisalignment;
  for (std::int64_t g = 0; g < grid_rows; ++g) {
    std::byte* row = storage.scales.get() + kMisalignment + g * weight.scale_stride;
    if constexpr (kGrid) {
      fill_grid_row(random, weight.scale_dtype, row, per_row);
    } else {
      for (std::int64_t i = 0; i < per_row; ++i) {
        put(row + i * static_cast<std::int64_t>(sizeof(typename F::Scale::Code)),
            random_scale_code<typename F::Scale>(random));
      }
    }
  }
}

template <class F>
void fill_row(Random& random, const WeightSpec& spec, std::byte* row) {
  if constexpr (HasInterleaved<F>) {
    if (spec.layout == WeightLayout::kInterleaved) {
      for (std::int64_t b = 0; b < spec.cols / F::kBlockValues; ++b) fill_block<F>(random, row + b * F::kBlockBytes);
      return;
    }
  }
  if constexpr (HasCodes<F>) fill_whole_codes<F>(random, row, spec.cols);
}

}  // namespace

std::uint64_t Random::next() {
  // xorshift64*
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return (state_ * 0x2545F4914F6CDD1DU) >> 8;
}

float Random::uniform() {
  return static_cast<float>(static_cast<std::int32_t>(next() & 0xFFFFFF) - 0x800000) * 0x1p-23F;
}

std::vector<float> Random::floats(std::int64_t count, float scale) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = uniform() * scale;
  return result;
}

std::vector<FormatCase> all_format_cases() {
  std::vector<FormatCase> cases;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    for (const WeightLayout layout : {WeightLayout::kPlain, WeightLayout::kInterleaved, WeightLayout::kSeparate}) {
      if (!kFormats[i].has_layout(layout)) continue;
      constexpr const char* kNames[] = {"plain", "interleaved", "separate"};
      std::string name = std::string(kFormats[i].name) + "_" + kNames[static_cast<int>(layout)];
      for (char& c : name) c = c == '-' ? '_' : c;
      cases.push_back({static_cast<FormatId>(i), layout, name, kFormats[i].cols_multiple(layout)});
    }
  }
  return cases;
}

Weight random_weight(const WeightSpec& spec) {
  Random random(spec.seed);
  auto storage = std::make_shared<Storage>();
  Weight weight;
  weight.format = spec.format;
  weight.layout = spec.layout;
  weight.rows = spec.rows;
  weight.cols = spec.cols;
  weight.row_stride = *format_info(spec.format).row_bytes(spec.layout, spec.cols) + spec.row_padding;
  storage->codes = poisoned(kMisalignment + spec.rows * weight.row_stride - spec.row_padding);
  weight.codes = storage->codes.get() + kMisalignment;
  visit_format(spec.format, [&]<class F>(std::type_identity<F>) {
    for (std::int64_t r = 0; r < spec.rows; ++r)
      fill_row<F>(random, spec, mutable_codes(weight) + r * weight.row_stride);
    if constexpr (HasSeparate<F>) {
      if (spec.layout == WeightLayout::kSeparate) fill_separate<F>(random, spec, weight, *storage);
    }
  });
  add_outer_scale(random, spec, weight);
  weight.owner = storage;
  return weight;
}

std::byte* mutable_codes(const Weight& weight) { return const_cast<std::byte*>(weight.codes); }
std::byte* mutable_scales(const Weight& weight) { return const_cast<std::byte*>(weight.scales); }

}  // namespace vernier::test
