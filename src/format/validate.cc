// Weight checks, derived from the format list: no format is named here.
#include "format/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

constexpr const char* kBadScale = "block scale is not a finite number in its legal range";
constexpr const char* kBadGridScale = "block scale is not a finite number above zero";
constexpr const char* kBadValue = "value is not a finite number";
constexpr const char* kTooLarge = "value overflows a 32-bit float";

/// Counts bad blocks of one row, remembering the first.
struct RowScan {
  BlockScan& total;
  std::int64_t row;

  void report(std::int64_t block, const char* what) {
    if (total.bad_blocks++ == 0) {
      total.row = row;
      total.block = block;
      total.what = what;
    }
  }
};

/// Whether codes begin .. end of a row or block are all finite.
template <class F, class Layout>
bool codes_are_finite(const std::byte* codes, std::int64_t begin, std::int64_t end) {
  bool finite = true;
  for (std::int64_t i = begin; i < end; ++i) finite &= F::Element::is_finite(load_code<F, Layout>(codes, i));
  return finite;
}

template <class F>
void scan_plain(const Weight& weight, RowScan scan) {
  using Layout = typename F::Plain;
  const std::byte* codes = weight.row_codes(scan.row);
  // Sound rows pass in a loop without a branch; only a bad one is searched value by value.
  if (codes_are_finite<F, Layout>(codes, 0, weight.cols)) return;
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    if (!codes_are_finite<F, Layout>(codes, i, i + 1)) scan.report(i, kBadValue);
  }
}

/// What is wrong with a group of a coded format, or null. `codes` and `scales` as for decode_codes().
template <class F, class Layout>
const char* fault_of_group(const std::byte* codes, const std::byte* scales, std::int64_t group) {
  using Element = typename F::Element;
  const auto scale_code = load_scale_code<F, Layout>(scales, group);
  if (!F::Scale::is_legal_scale(scale_code)) return kBadScale;
  const std::int64_t begin = group * F::kScaleValues;
  if (!codes_are_finite<F, Layout>(codes, begin, begin + F::kScaleValues)) return kBadValue;
  // Most formats can't overflow, whatever the bytes; of the others, only blocks with the largest scales need a look.
  constexpr double kLargest = static_cast<double>(F::Scale::kMax) * static_cast<double>(Element::kMax);
  if constexpr (kLargest <= static_cast<double>(std::numeric_limits<float>::max())) return nullptr;
  if (std::isfinite(F::Scale::decode(scale_code) * Element::kMax)) return nullptr;
  float values[F::kScaleValues];
  decode_codes<F, Layout>(codes, scales, begin, F::kScaleValues, values);
  const bool fits = std::all_of(values, values + F::kScaleValues, [](float value) { return std::isfinite(value); });
  return fits ? nullptr : kTooLarge;
}

template <class F>
void scan_interleaved(const Weight& weight, RowScan scan) {
  const std::byte* block = weight.row_codes(scan.row);
  const std::int64_t num_blocks = weight.cols / F::kBlockValues;
  for (std::int64_t b = 0; b < num_blocks; ++b, block += F::kBlockBytes) {
    if constexpr (HasCodes<F>) {
      constexpr int kGroups = F::kBlockValues / F::kScaleValues;
      for (int group = 0; group < kGroups; ++group) {
        const char* fault = fault_of_group<F, typename F::Interleaved>(block, block, group);
        if (fault != nullptr) scan.report(b * kGroups + group, fault);
      }
    } else {
      bool legal = true;
      for (const int offset : F::f16_offsets()) legal &= F16Codec::is_legal_scale(load_u16(block + offset));
      if (!legal) scan.report(b, kBadScale);
    }
  }
}

/// What is wrong with columns begin .. end of a row, all under one scale of a grid; or null.
template <class F>
const char* fault_of_tile(const std::byte* codes, float scale, std::int64_t begin, std::int64_t end) {
  if (!std::isfinite(scale) || !(scale > 0.0f)) return kBadGridScale;
  if (!codes_are_finite<F, typename F::Separate>(codes, begin, end)) return kBadValue;
  // A scale that large is damage whether or not a code reaches the limit.
  return std::isfinite(scale * F::Element::kMax) ? nullptr : kTooLarge;
}

template <class F>
void scan_separate(const Weight& weight, RowScan scan) {
  const std::byte* codes = weight.row_codes(scan.row);
  const std::byte* scales = weight.row_scales(scan.row);
  const std::int64_t num_blocks = scales_per_row(weight);
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const char* fault = nullptr;
    if constexpr (std::is_same_v<typename F::Scale, GridScale>) {
      const std::int64_t begin = b * weight.scale_block_cols;
      const std::int64_t end = std::min<std::int64_t>(begin + weight.scale_block_cols, weight.cols);
      fault = fault_of_tile<F>(codes, load_grid_scale(weight.scale_dtype, scales, b), begin, end);
    } else {
      fault = fault_of_group<F, typename F::Separate>(codes, scales, b);
    }
    if (fault != nullptr) scan.report(b, fault);
  }
}

Status check_separate_scales(const Weight& weight, const FormatInfo& info, std::string_view name) {
  if (weight.scales == nullptr) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} needs block scales, found none", escape(name), info.name);
  }
  const bool right_dtype =
      info.has_grid ? is_grid_scale_dtype(weight.scale_dtype) : weight.scale_dtype == info.scale_dtype;
  if (!right_dtype) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': block scales of {} are {}, expected {}", escape(name), info.name,
                dtype_name(weight.scale_dtype),
                info.has_grid ? std::string_view("F32, BF16 or F8_E8M0") : dtype_name(info.scale_dtype));
  }
  const bool right_block = info.has_grid ? weight.scale_block_rows > 0 && weight.scale_block_cols > 0
                                         : weight.scale_block_rows == 1 && weight.scale_block_cols == info.scale_values;
  if (!right_block || weight.first_row < 0) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} can't have scale blocks of {} x {} from row {}", escape(name),
                info.name, weight.scale_block_rows, weight.scale_block_cols, weight.first_row);
  }
  const std::int64_t bytes = scales_per_row(weight) * (dtype_bits(weight.scale_dtype) / 8);
  if (weight.scale_stride < bytes) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} bytes from one row of scales to the next, a row has {}",
                escape(name), weight.scale_stride, bytes);
  }
  return {};
}

}  // namespace

Status check_weight_shape(const Weight& weight, std::string_view name) {
  const FormatInfo& info = format_info(weight.format);
  if (!info.has_layout(weight.layout)) {
    return fail(ErrorCode::kInternal, "tensor '{}': format {} has no layout {}", escape(name), info.name,
                static_cast<int>(weight.layout));
  }
  if (weight.codes == nullptr || weight.rows <= 0) {
    return fail(ErrorCode::kCorrupt, "tensor '{}' has no data ({} rows)", escape(name), weight.rows);
  }
  const auto row_bytes = info.row_bytes(weight.layout, weight.cols);
  if (!row_bytes) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} columns, expected a positive multiple of {} for {}", escape(name),
                weight.cols, info.cols_multiple(weight.layout), info.name);
  }
  if (weight.row_stride < *row_bytes) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} bytes from one row to the next, a row has {}", escape(name),
                weight.row_stride, *row_bytes);
  }
  return weight.layout == WeightLayout::kSeparate ? check_separate_scales(weight, info, name) : Status{};
}

Status check_outer_scale(const Weight& weight, std::string_view name) {
  const FormatInfo& info = format_info(weight.format);
  const std::vector<float>& values = weight.outer.values;
  if (values.empty()) {
    if (info.outer_scale != OuterScaleUse::kRequired) return {};
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} needs a scale, found none", escape(name), info.name);
  }
  if (info.outer_scale == OuterScaleUse::kNone) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} has no second-level scale, found one", escape(name), info.name);
  }
  if (values.size() != 1 && values.size() != static_cast<std::size_t>(weight.rows)) {
    return fail(ErrorCode::kCorrupt, "tensor '{}': {} second-level scales, expected 1 or one for each of {} rows",
                escape(name), values.size(), weight.rows);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || !(values[i] > 0.0f)) {
      return fail(ErrorCode::kCorrupt, "tensor '{}': second-level scale {} is {}, expected a finite number above zero",
                  escape(name), i, values[i]);
    }
  }
  return {};
}

bool outer_scale_is_unusual(const OuterScale& outer) {
  return std::any_of(outer.values.begin(), outer.values.end(), [&](float value) {
    const double factor = outer.divides ? 1.0 / static_cast<double>(value) : static_cast<double>(value);
    return !(factor >= 1e-12 && factor <= 1e4);
  });
}

BlockScan scan_weight_blocks(const Weight& weight, std::int64_t row_begin, std::int64_t row_end) {
  BlockScan total;
  visit_format(weight.format, [&]<class F>(std::type_identity<F>) {
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const RowScan scan{total, row};
      if constexpr (HasPlain<F>) {
        if (weight.layout == WeightLayout::kPlain) scan_plain<F>(weight, scan);
      }
      if constexpr (HasInterleaved<F>) {
        if (weight.layout == WeightLayout::kInterleaved) scan_interleaved<F>(weight, scan);
      }
      if constexpr (HasSeparate<F>) {
        if (weight.layout == WeightLayout::kSeparate) scan_separate<F>(weight, scan);
      }
    }
  });
  return total;
}

Status check_weight_blocks(const Weight& weight, std::string_view name) {
  const BlockScan scan = scan_weight_blocks(weight, 0, weight.rows);
  if (scan.bad_blocks == 0) return {};
  return fail(ErrorCode::kCorrupt, "tensor '{}' ({}), row {}, block {}: {} ({} such blocks in all)", escape(name),
              format_info(weight.format).name, scan.row, scan.block, scan.what, scan.bad_blocks);
}

}  // namespace vernier
