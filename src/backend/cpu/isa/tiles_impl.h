// The row kernels that multiply in tiles: preparing of inputs, rows that tiles can't do, and the table. See kernels.h
// for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/tile_products_impl.h"

namespace {

/// Where tiles have the value that step i / 16 of a source has in lane i % 16.
struct TilePlaces {
  std::int32_t tile[kChunkValues];
  std::int32_t number[kChunkValues];
};
template <class Source, class Decoder>
constexpr TilePlaces kTilePlaces = [] {
  TilePlaces places{};
  for (int i = 0; i < kChunkValues; ++i) {
    for (int j = 0; j < kChunkValues; ++j) {
      if (Decoder::value_at(j / 32, j % 32) != Source::value_at(i / 16, i % 16)) continue;
      places.tile[i] = j / 32;
      places.number[i] = j % 32;
    }
  }
  return places;
}();

/// The product of a row with numbers that tiles don't take, and token t.
template <class Source, class Decoder>
float multiply_in_floats(const ManyProducts& args, std::int64_t row, std::int64_t t) {
  const std::int64_t width = args.width;
  const TilePlaces& places = kTilePlaces<Source, Decoder>;
  const float* prepared = args.x[t];
  FewSums<Source, 1, 1> sums;
  sums.totals[0][0] = Lanes::all(0.0F);
  RowReader<Source> reader;
  Cursor<Source> cursor;
  float inputs[kChunkValues];
  const auto add_chunk = [&](Cursor<Source>& at) {
    for (int i = 0; i < kChunkValues; ++i) {
      const float* pair = prepared + (places.tile[i] * 16 + places.number[i] / 2) * width + t % kTileColumns;
      std::uint32_t words = 0;
      __builtin_memcpy(&words, pair, sizeof(words));
      words = places.number[i] % 2 == 0 ? words << 16U : words & 0xFFFF0000U;
      __builtin_memcpy(&inputs[i], &words, sizeof(words));
    }
    prepared += kChunkValues / 2 * width;
    sums.x[0] = inputs;
    const typename Source::Chunk chunks[1] = {typename Source::Chunk(at.at)};
    sums.add_chunk(chunks, {at.scales});
  };
  for (std::int64_t k = 0; k < args.rows.cols; k += kScaleBlock<Source>) {
    const std::int64_t count = args.rows.cols - k < kScaleBlock<Source> ? args.rows.cols - k : kScaleBlock<Source>;
    const std::int64_t whole = reader.start(args.rows, row, k, count, cursor);
    for (std::int64_t i = 0; i < whole; ++i, cursor.advance()) add_chunk(cursor);
    const std::int64_t rest = count - whole * Source::kValues;
    if (rest == 0) continue;
    reader.complete(rest, cursor);
    add_chunk(cursor);
  }
  return sums.totals[0][0].sum();
}

/// Sums as products, token by token.
template <class Products>
void store_products(const Products& from) {
  const ManyProducts& args = from.args;
  const std::int64_t num_rows = args.end - args.begin;
  for (std::int64_t r = 0; r < num_rows; r += 16) {
    const std::int64_t rows = num_rows - r < 16 ? num_rows - r : 16;
    for (std::int64_t group = 0; group < from.groups; ++group) {
      const std::int64_t first = group * kTileColumns;
      const float* sums = from.totals(r, group);
      Lanes columns[16];
      for (int i = 0; i < 16; ++i) columns[i] = Lanes::load(sums + i * 16);
      Lanes::transpose(columns);
      const std::int64_t tokens = args.tokens - first < kTileColumns ? args.tokens - first : kTileColumns;
      for (std::int64_t t = 0; t < tokens; ++t) {
        columns[t].store_first(args.products + (first + t) * num_rows + r, rows);
      }
    }
  }
}

/// Most rows of a call.
constexpr std::int64_t kMostRows = 512;

template <class Source, class Decoder>
void multiply_tiles(const ManyProducts& args) {
  const std::int64_t num_rows = args.end - args.begin;
  TileRoom room;
  room.panel = reinterpret_cast<std::uint16_t*>(args.scratch);
  room.totals = args.scratch + kTileBlockRows * kPanelValues / 2;
  std::uint8_t flags[kMostRows + kTileBlockRows] = {};
  const TileProducts<Source, Decoder> products{args, room, flags};
  const std::int64_t blocks = (num_rows + kTileBlockRows - 1) / kTileBlockRows;
  __builtin_memset(room.totals, 0,
                   static_cast<std::size_t>(blocks * products.groups * 2 * kTileFloats) * sizeof(float));
  {
    const Tiles tiles(args.width);
    if (products.groups == 1)
      products.multiply_one_group();
    else
      products.multiply_groups();
  }
  store_products(products);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    if (flags[r] == kFits) continue;
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      args.products[t * num_rows + r] =
          (flags[r] & kIsNan) != 0 ? __builtin_nanf("") : multiply_in_floats<Source, Decoder>(args, args.begin + r, t);
    }
  }
}

struct PairOrder {
  std::int32_t even[kChunkTiles][16];
  std::int32_t odd[kChunkTiles][16];
};
template <class Decoder>
constexpr PairOrder kPairOrder = [] {
  PairOrder order{};
  for (int tile = 0; tile < kChunkTiles; ++tile) {
    for (int i = 0; i < 16; ++i) {
      order.even[tile][i] = Decoder::value_at(tile, 2 * i);
      order.odd[tile][i] = Decoder::value_at(tile, 2 * i + 1);
    }
  }
  return order;
}();

template <class Source>
std::int64_t tile_input_floats(std::int64_t cols) {
  return (cols + kChunkValues - 1) / kChunkValues * kChunkValues / 2;
}

template <class Source, class Decoder>
void prepare_tiles(const float* const* x, std::int64_t tokens, std::int64_t width, std::int64_t cols, float* prepared) {
  const PairOrder& order = kPairOrder<Decoder>;
  const auto rounded = [](Lanes values) {
    return Lanes::round_to_bf16(Source::kFactor == 1.0F ? values : values * Lanes::all(Source::kFactor));
  };
  float rest[kTileColumns][kChunkValues];
  for (std::int64_t k = 0; k < cols; k += kChunkValues) {
    const float* from[kTileColumns];
    for (std::int64_t t = 0; t < tokens; ++t) {
      from[t] = x[t] + k;
      if (k + kChunkValues <= cols) continue;
      for (std::int64_t i = 0; i < kChunkValues; ++i) rest[t][i] = k + i < cols ? from[t][i] : 0.0F;
      from[t] = rest[t];
    }
    for (int tile = 0; tile < kChunkTiles; ++tile, prepared += kTileValues / 2 * width) {
      Lanes pairs[kTileColumns];
      for (std::int64_t t = 0; t < kTileColumns; ++t) {
        pairs[t] = Lanes::all(0.0F);
        if (t >= tokens) continue;
        pairs[t] = Lanes::pair_bf16(rounded(Lanes::gather(from[t], order.even[tile])),
                                    rounded(Lanes::gather(from[t], order.odd[tile])));
      }
      if (width == 1) {
        pairs[0].store(prepared);
        continue;
      }
      Lanes::transpose(pairs);
      for (int i = 0; i < 16; ++i) {
        if (width == kTileColumns)
          pairs[i].store(prepared + i * kTileColumns);
        else
          pairs[i].store_first(prepared + i * width, width);
      }
    }
  }
}

template <class Source, class Decoder>
constexpr RowKernels kTileKernels = {
    .input_floats = tile_input_floats<Source>,
    .prepare = nullptr,
    .multiply_few = nullptr,
    .multiply_many = multiply_tiles<Source, Decoder>,
    .prepare_group = prepare_tiles<Source, Decoder>,
};

template <class F, class Layout, bool kInterleaved>
constexpr const RowKernels* folding_kernels() {
  if constexpr (std::is_same_v<typename F::Element, vn::E2M1Codec> && sizeof(typename F::Scale::Code) == 1) {
    using Source = NibbleSource<F, Layout, kInterleaved>;
    return &kTileKernels<Source, FoldingDecoder<Source>>;
  }
  return nullptr;
}

/// The tiles' kernels of a format, or null where bf16 doesn't hold its values.
template <class F>
const RowKernels* tile_kernels_of(unsigned layout, std::int64_t scale_block_cols) {
  if constexpr (vn::HasPlain<F>) {
    if (layout == static_cast<unsigned>(vn::WeightLayout::kPlain)) {
      if constexpr (F::Element::kBits == 8) {
        return &kTileKernels<E4M3Source<false>, PairDecoder<E4M3Source<false>>>;
      } else if constexpr (std::is_same_v<typename F::Element, vn::BF16Codec>) {
        using Source = FloatSource<vn::BF16Codec>;
        return &kTileKernels<Source, CopyDecoder<Source>>;
      }
    }
  }
  if constexpr (vn::HasInterleaved<F>) {
    if constexpr (vn::HasCodes<F>) {
      if (layout == static_cast<unsigned>(vn::WeightLayout::kInterleaved))
        return folding_kernels<F, typename F::Interleaved, true>();
    }
  }
  if constexpr (vn::HasSeparate<F>) {
    if (layout == static_cast<unsigned>(vn::WeightLayout::kSeparate)) {
      if constexpr (!std::is_same_v<typename F::Scale, vn::GridScale>) {
        return folding_kernels<F, typename F::Separate, false>();
      } else if (scale_block_cols % 128 == 0) {
        return &kTileKernels<E4M3Source<true>, PairDecoder<E4M3Source<true>>>;
      }
    }
  }
  return nullptr;
}

template <class List>
struct TileKernelTable;
template <class... Formats>
struct TileKernelTable<vn::FormatTypes<Formats...>> {
  static constexpr const RowKernels* (*kOf[])(unsigned, std::int64_t) = {tile_kernels_of<Formats>...};
  static constexpr unsigned kCount = sizeof...(Formats);
};

const RowKernels* find_tile_kernels(unsigned format, unsigned layout, std::int64_t scale_block_cols) {
  using Table = TileKernelTable<vn::FormatList>;
  const RowKernels* tiles = format < Table::kCount ? Table::kOf[format](layout, scale_block_cols) : nullptr;
  return tiles != nullptr ? tiles : vernier_isa::avx512_kernels().row_kernels(format, layout, scale_block_cols);
}

/// TDPBF16PS from registers, in four chains.
double spin_tile_products(std::int64_t rounds, float* sink) {
  alignas(64) float numbers[kTileFloats];
  for (int i = 0; i < kTileFloats; ++i) numbers[i] = sink[i % vernier_isa::kSinkFloats];
  const Tiles tiles(kTileColumns);
  finish_stores();
  zero_sums<2, 2>();
  _tile_loadd(4, numbers, 64);
  _tile_loadd(5, numbers, 64);
  _tile_loadd(6, numbers, 64);
  _tile_loadd(7, numbers, 64);
  const std::int64_t steps = rounds / 16 + 1;  // each takes longer than a round of other instruction sets
  for (std::int64_t n = 0; n < steps; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, numbers, 64);
  for (int i = 0; i < vernier_isa::kSinkFloats; ++i) sink[i] = numbers[i];
  return static_cast<double>(steps) * 4 * 2 * 16 * 16 * 32;
}

}  // namespace
