// Products of weight rows with prepared activations, over the sources of sources_impl.h. See kernels.h for the contract
// and this folder's rules.
#pragma once

#include "backend/cpu/isa/inlining.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/rows_ahead_impl.h"
#include "backend/cpu/isa/sources_impl.h"

namespace {

using vernier_isa::GroupProducts;
using vernier_isa::kPanelRowFloats;
using vernier_isa::kPanelValues;
using vernier_isa::ManyProducts;
using vernier_isa::RowKernels;

template <int kNumber>
struct Constant {
  static constexpr int kValue = kNumber;
};

/// fn(Constant<i>) for i in [kFirst, kEnd), unrolled.
template <int kFirst, int kEnd, class Function>
VN_INLINED inline void unroll(const Function& fn) {
  if constexpr (kFirst < kEnd) {
    fn(Constant<kFirst>{});
    unroll<kFirst + 1, kEnd>(fn);
  }
}

/// Values whose scales are expanded at a time: those of a row where there are few scales.
template <class Source>
constexpr std::int64_t kScaleBlock = Source::kScales * 16 <= Source::kValues ? 4096 : 2048;

/// Floats of a chunk's prepared inputs: its values, and for minimums one more segment.
template <class Source>
constexpr int kChunkInputs = Source::kValues + (Source::kHasMinimums ? Source::kSteps * 16 : 0);

template <class Source>
std::int64_t input_floats(std::int64_t cols) {
  return (cols + Source::kValues - 1) / Source::kValues * kChunkInputs<Source>;
}

template <class Source>
struct InputOrder {
  std::int32_t index[Source::kValues];
};
template <class Source>
constexpr InputOrder<Source> kInputOrder = [] {
  InputOrder<Source> order{};
  for (int i = 0; i < Source::kValues; ++i) order.index[i] = Source::value_at(i / 16, i % 16);
  return order;
}();
template <class Source>
constexpr bool kIsNatural = [] {
  for (int i = 0; i < Source::kValues; ++i) {
    if (Source::value_at(i / 16, i % 16) != i) return false;
  }
  return true;
}();

template <class Source>
void prepare_chunk(const float* x, bool round, float* prepared) {
  for (int i = 0; i < Source::kValues; i += 16) {
    Lanes values = kIsNatural<Source> ? Lanes::load(x + i) : Lanes::gather(x, kInputOrder<Source>.index + i);
    if (round) values = Lanes::round_to_bf16(values);
    if constexpr (Source::kFactor != 1.0F) values = values * Lanes::all(Source::kFactor);
    values.store(prepared + i);
  }
}

/// Behind a chunk's inputs, the sum of those that each minimum meets.
template <class Source>
void sum_for_minimums(const float* x, bool round, float* sums) {
  constexpr int kTogether = Source::kValues / 16;
  for (int i = 0; i < Source::kSteps * 16; ++i) sums[i] = 0.0F;
  for (int i = 0; i < 16; ++i) {
    Lanes sum = Lanes::all(0.0F);
    for (int j = 0; j < kTogether; j += 16) {
      const Lanes values = Lanes::load(x + i * kTogether + j);
      sum = sum + (round ? Lanes::round_to_bf16(values) : values);
    }
    sums[i] = sum.sum();
  }
}

template <class Source>
void prepare(const float* x, std::int64_t cols, bool round, float* prepared) {
  for (std::int64_t k = 0; k < cols; k += Source::kValues, prepared += kChunkInputs<Source>) {
    const float* values = x + k;
    float rest[Source::kValues];
    if (k + Source::kValues > cols) {
      for (std::int64_t i = 0; i < Source::kValues; ++i) rest[i] = k + i < cols ? values[i] : 0.0F;
      values = rest;
    }
    prepare_chunk<Source>(values, round, prepared);
    if constexpr (Source::kHasMinimums) sum_for_minimums<Source>(values, round, prepared + Source::kValues);
  }
}

/// Sums of up to kRows x kTokens products of rows in their stored form.
template <class Source, int kRows, int kTokens>
struct FewSums {
  using Chunk = typename Source::Chunk;
  Lanes totals[kRows][kTokens];
  const float* x[kTokens];

  VN_INLINED inline void add_chunk(const Chunk (&chunks)[kRows], const float* const (&scales)[kRows]) {
    const auto table = Source::table();
    const Lanes zero = Lanes::all(0.0F);
    unroll<0, Source::kSegments>([&](auto segment) VN_INLINED {
      constexpr int kSegment = decltype(segment)::kValue;
      Lanes sums[kRows][kTokens];
      unroll<0, Source::kSteps>([&](auto step) VN_INLINED {
        constexpr int kStep = kSegment * Source::kSteps + decltype(step)::kValue;
        for (int r = 0; r < kRows; ++r) {
          const Lanes weights = chunks[r].template step<kStep>(table);
          for (int t = 0; t < kTokens; ++t) {
            const Lanes inputs = Lanes::load(x[t] + kStep * 16);
            sums[r][t] = Lanes::fma(weights, inputs, kStep % Source::kSteps == 0 ? zero : sums[r][t]);
          }
        }
      });
      for (int r = 0; r < kRows; ++r) {
        const Lanes scale = Source::template scale<kSegment>(scales[r]);
        for (int t = 0; t < kTokens; ++t) totals[r][t] = Lanes::fma(sums[r][t], scale, totals[r][t]);
      }
    });
    if constexpr (Source::kHasMinimums) {
      for (int r = 0; r < kRows; ++r) {
        const Lanes minimums = Source::minimums(scales[r]);
        for (int t = 0; t < kTokens; ++t) {
          totals[r][t] = totals[r][t] + Lanes::fma(minimums, Lanes::load(x[t] + Source::kValues), zero);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) x[t] += kChunkInputs<Source>;
  }
  template <class Cursors>
  VN_INLINED inline void add_chunk_of(const Cursors& cursors) {
    if constexpr (kRows == 1) {
      const Chunk chunks[1] = {Chunk(cursors[0].at)};
      add_chunk(chunks, {cursors[0].scales});
    } else {
      static_assert(kRows == 2);
      const Chunk chunks[2] = {Chunk(cursors[0].at), Chunk(cursors[1].at)};
      add_chunk(chunks, {cursors[0].scales, cursors[1].scales});
    }
  }
};

/// Where one stands in a row. Apart from the arrays of RowReader, so that it stays in registers.
template <class Source>
struct Cursor {
  const std::byte* at = nullptr;  ///< the next chunk
  const float* scales = nullptr;  ///< of the next chunk
  typename Source::Watch watch = {};

  /// Fetches what lies `ahead` bytes behind the chunk.
  void see_and_prefetch(std::int64_t ahead) {
    for (int line = 0; line < Source::kChunkBytes; line += 64) Lanes::prefetch(at + ahead + line);
    watch.see(at);
  }
  void advance() {
    at += Source::kChunkBytes;
    scales += Source::kScales;
  }
};

/// What belongs to up to kScaleBlock<Source> values of one row.
template <class Source>
struct RowReader {
  alignas(64) float scales[kScaleBlock<Source> / Source::kValues * Source::kScales + 16];
  alignas(64) std::byte last[Source::kChunkBytes + 64];  ///< a copy of a chunk that can't be read in place

  /// Returns the number of chunks that can be read in place. Where the last one may be, what follows the row stands in
  /// it for the zeros of complete().
  template <bool kReadsOn = false>
  std::int64_t start(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                     Cursor<Source>& cursor) {
    Source::fill_scales(rows, row, begin, count, scales);
    return start_unscaled<kReadsOn>(rows, row, begin, count, cursor);
  }
  template <bool kReadsOn = false>
  std::int64_t start_unscaled(const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count,
                              Cursor<Source>& cursor) {
    cursor.at = rows.codes + row * rows.row_stride + begin / Source::kValues * Source::kChunkBytes;
    cursor.scales = scales;
    const std::int64_t whole = count / Source::kValues;
    const std::int64_t all = (count + Source::kValues - 1) / Source::kValues;
    if (!kReadsOn && whole < all) return whole;
    const bool beyond = cursor.at + all * Source::kChunkBytes + Source::Chunk::kOverread > rows.codes_end;
    return beyond ? all - 1 : all;
  }
  /// Completes the last `rest` values of a row with zeros. Zero codes may stand for other numbers, which meet zero
  /// inputs: any finite scale will do, and fill_scales() has seen to that.
  void complete(std::int64_t rest, Cursor<Source>& cursor) {
    __builtin_memset(last, 0, sizeof(last));
    __builtin_memcpy(last, cursor.at, static_cast<std::size_t>(Source::bytes_of(rest)));
    cursor.at = last;
    cursor.watch.see(last);
  }
};

/// Products of some rows with kTokens tokens.
template <class Source, int kRows, int kTokens>
void multiply_block(const WeightRows& rows, const RowsAtOnce<kRows>& at, const float* const* x,
                    float (&products)[kRows][kTokens]) {
  FewSums<Source, kRows, kTokens> sums;
  RowReader<Source> readers[kRows];
  Cursor<Source> cursors[kRows];
  for (int t = 0; t < kTokens; ++t) sums.x[t] = x[t];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sums.totals[r][t] = Lanes::all(0.0F);
  }
  for (std::int64_t begin = 0; begin < rows.cols; begin += kScaleBlock<Source>) {
    const std::int64_t count = rows.cols - begin < kScaleBlock<Source> ? rows.cols - begin : kScaleBlock<Source>;
    std::int64_t whole = count;
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t in_place =
          readers[r].template start<Source::kAnyCodeIsFinite>(rows, at.row[r], begin, count, cursors[r]);
      whole = in_place < whole ? in_place : whole;
    }
    for (std::int64_t i = 0; i < whole; ++i) {
      for (int r = 0; r < kRows; ++r) cursors[r].see_and_prefetch(at.ahead);
      sums.add_chunk_of(cursors);
      for (int r = 0; r < kRows; ++r) cursors[r].advance();
    }
    const std::int64_t rest = count - whole * Source::kValues;
    if (rest <= 0) continue;
    for (int r = 0; r < kRows; ++r) readers[r].complete(rest, cursors[r]);
    sums.add_chunk_of(cursors);
  }
  for (int r = 0; r < kRows; ++r) {
    const bool is_nan = cursors[r].watch.seen();
    for (int t = 0; t < kTokens; ++t) products[r][t] = is_nan ? __builtin_nanf("") : sums.totals[r][t].sum();
  }
}

/// All rows with tokens [0, tokens), tokens <= kTokens; the last token stands in for missing ones.
template <class Source, int kRows, int kTokens>
void multiply_all(const FewProducts& args) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = args.x[t < args.tokens ? t : args.tokens - 1];
  float* out = args.products;
  const std::int64_t far = rows_ahead<kRows>(args.rows);
  for (std::int64_t row = args.begin; row < args.end; row += kRows) {
    float products[kRows][kTokens];
    multiply_block<Source, kRows, kTokens>(args.rows, take_rows<kRows>(args, row, far), x, products);
    for (int r = 0; r < kRows && row + r < args.end; ++r) {
      for (std::int64_t t = 0; t < args.tokens; ++t) *out++ = products[r][t];
    }
  }
}

template <class Source>
void multiply_few(const FewProducts& args) {
  if (args.tokens == 1) return multiply_all<Source, 2, 1>(args);
  if (args.tokens == 2) return multiply_all<Source, 2, 2>(args);
  multiply_all<Source, 2, 4>(args);
}

constexpr int kTileRows = Lanes::kTileRows;
constexpr int kTileTokens = Lanes::kTileTokens;
static_assert(vernier_isa::kTileRows % kTileRows == 0 && vernier_isa::kTileTokens % kTileTokens == 0);

/// Floats from a row of a panel to the next.
template <class Source>
constexpr std::int64_t kPanelStride = kPanelValues /
                                      Source::kValues*(kChunkInputs<Source> + kChunkInputs<Source> / Source::kSteps);

/// A chunk as the segments of a panel: codes as numbers, then the scales of the lanes.
template <class Source>
VN_INLINED inline float* decode_chunk(const Cursor<Source>& cursor, float* to) {
  const typename Source::Chunk chunk(cursor.at);
  const auto table = Source::table();
  unroll<0, Source::kSegments>([&](auto segment) VN_INLINED {
    constexpr int kSegment = decltype(segment)::kValue;
    unroll<0, Source::kSteps>([&](auto step) VN_INLINED {
      constexpr int kStep = decltype(step)::kValue;
      chunk.template step<kSegment * Source::kSteps + kStep>(table).store(to + kStep * 16);
    });
    to += Source::kSteps * 16;
    Source::template scale<kSegment>(cursor.scales).store(to);
    to += 16;
  });
  if constexpr (Source::kHasMinimums) {
    Source::minimums(cursor.scales).store(to);
    for (int step = 1; step < Source::kSteps; ++step) Lanes::all(0.0F).store(to + step * 16);
    Lanes::all(1.0F).store(to + Source::kSteps * 16);
    to += Source::kSteps * 16 + 16;
  }
  return to;
}

/// Values [value_begin, value_begin + count) of rows [begin, end) as a panel. Returns the segments of a row.
template <class Source>
std::int64_t decode_panel(const ManyProducts& args, std::int64_t begin, std::int64_t end, std::int64_t value_begin,
                          std::int64_t count) {
  const std::int64_t ahead = kTileRows * args.rows.row_stride;
  RowReader<Source> reader;
  std::int64_t floats = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    float* const first = args.scratch + (row - begin) * kPanelStride<Source>;
    float* to = first;
    Cursor<Source> cursor;
    const std::int64_t whole = reader.start(args.rows, row, value_begin, count, cursor);
    for (std::int64_t i = 0; i < whole; ++i) {
      cursor.see_and_prefetch(ahead);
      to = decode_chunk(cursor, to);
      cursor.advance();
    }
    const std::int64_t rest = count - whole * Source::kValues;
    if (rest > 0) {
      reader.complete(rest, cursor);
      to = decode_chunk(cursor, to);
    }
    if (cursor.watch.seen()) to[-16] = __builtin_nanf("");  // a scale
    floats = to - first;
  }
  return floats / (Source::kSteps * 16 + 16);
}

/// totals += the products of kRows rows of a panel with kTokens tokens; fetches what the next tokens' rows hold there.
template <int kSteps>
void add_tile(const float* const (&w)[kTileRows], const float* const (&x)[kTileTokens],
              const float* const (&next)[kTileTokens], std::int64_t segments, float* totals) {
  constexpr int kSegmentFloats = kSteps * 16 + 16;
  const Lanes zero = Lanes::all(0.0F);
  for (std::int64_t s = 0; s < segments; ++s) {
    Lanes sums[kTileRows][kTileTokens];
    unroll<0, kSteps>([&](auto step) VN_INLINED {
      constexpr int kStep = decltype(step)::kValue;
      const std::int64_t at = s * kSteps * 16 + kStep * 16;
      Lanes inputs[kTileTokens];
      for (int t = 0; t < kTileTokens; ++t) {
        inputs[t] = Lanes::load(x[t] + at);
        Lanes::prefetch(reinterpret_cast<const std::byte*>(next[t] + at));
      }
      for (int r = 0; r < kTileRows; ++r) {
        const Lanes weights = Lanes::load(w[r] + s * kSegmentFloats + kStep * 16);
        for (int t = 0; t < kTileTokens; ++t) {
          sums[r][t] = Lanes::fma(weights, inputs[t], kStep == 0 ? zero : sums[r][t]);
        }
      }
    });
    for (int r = 0; r < kTileRows; ++r) {
      const Lanes scale = Lanes::load(w[r] + s * kSegmentFloats + kSteps * 16);
      for (int t = 0; t < kTileTokens; ++t) {
        float* total = totals + (r * kTileTokens + t) * 16;
        Lanes::fma(sums[r][t], scale, Lanes::load(total)).store(total);
      }
    }
  }
}

/// Calls tile(w, x, next, totals) for each tile of a group; the last row or token stands in for missing ones.
template <int kSteps>
void multiply_group(const GroupProducts& args) {
  const float* w[kTileRows];
  for (int r = 0; r < kTileRows; ++r) w[r] = args.panel + (r < args.rows ? r : args.rows - 1) * args.panel_stride;
  float* totals = args.totals;
  for (std::int64_t token = 0; token < args.tokens; token += kTileTokens, totals += kTileRows * kTileTokens * 16) {
    const float* x[kTileTokens];
    const float* next[kTileTokens];
    for (int t = 0; t < kTileTokens; ++t) {
      const std::int64_t last = args.tokens - 1;
      const std::int64_t behind = token + kTileTokens + t;
      x[t] = args.x[token + t < last ? token + t : last] + args.x_begin;
      next[t] = args.x[behind < last ? behind : last] + args.x_begin;
    }
    add_tile<kSteps>(w, x, next, args.segments, totals);
  }
}

template <class Source>
void multiply_many(const ManyProducts& args) {
  const std::int64_t group_floats = (args.tokens + kTileTokens - 1) / kTileTokens * kTileTokens * kTileRows * 16;
  const std::int64_t num_groups = (args.end - args.begin + kTileRows - 1) / kTileRows;
  float* totals = args.scratch + vernier_isa::kTileRows * kPanelRowFloats;
  auto* packed = reinterpret_cast<std::uint32_t*>(totals + num_groups * group_floats);
  __builtin_memset(totals, 0, static_cast<std::size_t>(num_groups * group_floats) * sizeof(float));
  for (std::int64_t k = 0; k < args.rows.cols; k += kPanelValues) {
    const std::int64_t count = args.rows.cols - k < kPanelValues ? args.rows.cols - k : kPanelValues;
    const std::int64_t x_begin = k / Source::kValues * kChunkInputs<Source>;
    const bool in_pairs = args.pairs != nullptr && Source::kSteps % 2 == 0 &&
                          args.pairs->pack_inputs(args.x, x_begin, input_floats<Source>(count), args.tokens, packed);
    for (std::int64_t group = 0; group < num_groups; ++group) {
      const std::int64_t begin = args.begin + group * kTileRows;
      const std::int64_t end = begin + kTileRows < args.end ? begin + kTileRows : args.end;
      const std::int64_t segments = decode_panel<Source>(args, begin, end, k, count);
      const GroupProducts products = {
          args.scratch, kPanelStride<Source>,         end - begin, Source::kSteps, segments, args.x, x_begin,
          args.tokens,  totals + group * group_floats};
      if (in_pairs && args.pairs->multiply_group(products, packed)) continue;
      multiply_group<Source::kSteps>(products);
    }
  }
  for (std::int64_t row = 0; row < args.end - args.begin; ++row) {
    const float* tile = totals + row / kTileRows * group_floats + row % kTileRows * kTileTokens * 16;
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      const float* lanes = tile + t / kTileTokens * kTileRows * kTileTokens * 16 + t % kTileTokens * 16;
      args.products[row * args.tokens + t] = Lanes::load(lanes).sum();
    }
  }
}

template <class Source>
constexpr RowKernels kRowKernels = {
    .input_floats = input_floats<Source>,
    .prepare = prepare<Source>,
    .multiply_few = multiply_few<Source>,
    .multiply_many = multiply_many<Source>,
};

template <class F>
const RowKernels* kernels_of(unsigned layout, std::int64_t scale_block_cols) {
  if constexpr (vn::HasPlain<F>) {
    if (layout == static_cast<unsigned>(vn::WeightLayout::kPlain)) {
      if constexpr (F::Element::kBits == 8) {
        return &kRowKernels<E4M3Source<false>>;
      } else {
        return &kRowKernels<FloatSource<typename F::Element>>;
      }
    }
  }
  if constexpr (vn::HasInterleaved<F>) {
    if (layout == static_cast<unsigned>(vn::WeightLayout::kInterleaved)) {
      if constexpr (vn::HasScaleMinimumNibbles<F>) {
        return &kRowKernels<ScaleMinimumSource<F>>;
      } else if constexpr (vn::HasCodes<F>) {
        if constexpr (F::Element::kBits == 4)
          return &kRowKernels<NibbleSource<F, typename F::Interleaved, true>>;
        else
          return &kRowKernels<Int8Source<F>>;
      } else {
        return &kRowKernels<BlockSource<F>>;
      }
    }
  }
  if constexpr (vn::HasSeparate<F>) {
    if (layout == static_cast<unsigned>(vn::WeightLayout::kSeparate)) {
      if constexpr (!std::is_same_v<typename F::Scale, vn::GridScale>) {
        return &kRowKernels<NibbleSource<F, typename F::Separate, false>>;
      } else if (scale_block_cols % 128 == 0) {
        return &kRowKernels<E4M3Source<true>>;
      } else {
        return &kRowKernels<AnyGridSource<typename F::Element>>;
      }
    }
  }
  return nullptr;
}

template <class List>
struct RowKernelTable;
template <class... Formats>
struct RowKernelTable<vn::FormatTypes<Formats...>> {
  static constexpr const RowKernels* (*kOf[])(unsigned, std::int64_t) = {kernels_of<Formats>...};
  static constexpr unsigned kCount = sizeof...(Formats);
};

[[maybe_unused]] const RowKernels* find_row_kernels(unsigned format, unsigned layout, std::int64_t scale_block_cols) {
  using Table = RowKernelTable<vn::FormatList>;
  return format < Table::kCount ? Table::kOf[format](layout, scale_block_cols) : nullptr;
}

}  // namespace
