// Row decoding, derived from the format list: no format is named here.
#include "format/decode.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "format/format_list.h"
#include "format/grid_scale.h"
#include "format/stored_rows.h"

namespace vernier {
namespace {

/// A range of columns of one row.
struct Span {
  std::int64_t row;
  std::int64_t begin;
  std::int64_t count;
};

template <class F, class Real>
void decode_plain(const Weight& weight, Span span, Real* out) {
  const std::byte* codes = weight.row_codes(span.row);
  for (std::int64_t i = 0; i < span.count; ++i) {
    out[i] =
        static_cast<Real>(decode_code<typename F::Element>(load_code<F, typename F::Plain>(codes, span.begin + i)));
  }
}

template <class F, class Real>
void decode_interleaved(const Weight& weight, Span span, Real* out) {
  const std::byte* codes = weight.row_codes(span.row);
  const std::int64_t end = span.begin + span.count;
  for (std::int64_t at = span.begin; at < end;) {
    const std::int64_t first = at % F::kBlockValues;
    const std::int64_t count = std::min<std::int64_t>(F::kBlockValues - first, end - at);
    const std::byte* block = codes + at / F::kBlockValues * F::kBlockBytes;
    if constexpr (HasCodes<F>) {
      decode_codes<F, typename F::Interleaved>(block, block, first, count, out);
    } else {
      float values[F::kBlockValues];
      F::decode_block(block, values);
      std::copy_n(values + first, count, out);
    }
    out += count;
    at += count;
  }
}

template <class F, class Real>
void decode_separate(const Weight& weight, Span span, Real* out) {
  const std::byte* codes = weight.row_codes(span.row);
  const std::byte* scales = weight.row_scales(span.row);
  if constexpr (std::is_same_v<typename F::Scale, GridScale>) {
    const std::int64_t end = span.begin + span.count;
    for (std::int64_t at = span.begin; at < end;) {
      const std::int64_t tile = at / weight.scale_block_cols;
      const std::int64_t tile_end = std::min<std::int64_t>((tile + 1) * weight.scale_block_cols, end);
      const Real scale = static_cast<Real>(load_grid_scale(weight.scale_dtype, scales, tile));
      for (; at < tile_end; ++at) {
        *out++ =
            static_cast<Real>(decode_code<typename F::Element>(load_code<F, typename F::Separate>(codes, at))) * scale;
      }
    }
  } else {
    decode_codes<F, typename F::Separate>(codes, scales, span.begin, span.count, out);
  }
}

template <class Real>
void decode_span(const Weight& weight, Span span, Real* out) {
  visit_format(weight.format, [&]<class F>(std::type_identity<F>) {
    if constexpr (HasPlain<F>) {
      if (weight.layout == WeightLayout::kPlain) return decode_plain<F>(weight, span, out);
    }
    if constexpr (HasInterleaved<F>) {
      if (weight.layout == WeightLayout::kInterleaved) return decode_interleaved<F>(weight, span, out);
    }
    if constexpr (HasSeparate<F>) {
      if (weight.layout == WeightLayout::kSeparate) return decode_separate<F>(weight, span, out);
    }
    std::fill_n(out, span.count, std::numeric_limits<Real>::quiet_NaN());
  });
}

}  // namespace

void decode_row(const Weight& weight, std::int64_t row, std::int64_t col_begin, std::int64_t count, float* out) {
  decode_span(weight, {row, col_begin, count}, out);
}

void decode_row_f64(const Weight& weight, std::int64_t row, std::int64_t col_begin, std::int64_t count, double* out) {
  decode_span(weight, {row, col_begin, count}, out);
}

std::uint64_t storage_bytes(const Weight& weight) {
  return static_cast<std::uint64_t>(code_rows(weight).size() + scale_rows(weight).size());
}

}  // namespace vernier
