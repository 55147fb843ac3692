// Products of weight rows with activations by AMX: how panels of rows meet groups of tokens. See kernels.h for the
// contract and this folder's rules.
//
// TDPBF16PS multiplies 16 rows of 32 weights with 32 inputs of up to 16 tokens. For each of their products it sums the
// 16 even and the 16 odd elements apart, in order, from zero, by fused multiply-adds, adds the two sums and then adds
// that to the tile's number; everything rounded to nearest, subnormals taken for zero. A number doesn't depend on how
// many rows and tokens its tile has. So it's tiles for any number of tokens here, down to one, whose weights are bound
// by memory anyway.
#pragma once

#include "backend/cpu/isa/inlining.h"
#include "backend/cpu/isa/tile_sources_impl.h"

namespace {

using vernier_isa::kTileBlockRows;
using vernier_isa::kTileColumns;
using vernier_isa::kTileValues;

constexpr std::int64_t kPanelTiles = kPanelValues / kTileValues;
constexpr int kTileFloats = 16 * 16;  ///< of a tile of sums in memory
static_assert(kPanelTiles == 16);     // as many as a tile has rows

/// The compilers' intrinsics for tiles don't all say which memory they read.
VN_INLINED inline void finish_stores() { asm volatile("" ::: "memory"); }

/// Tiles 0..3 are sums: of 16 rows (0, 1) and those behind them (2, 3), of some tokens (0, 2) and those behind them. 4
/// and 5 are weights, 6 and 7 inputs. Released at the end, so that a thread that waits has no tiles to be saved.
class Tiles {
 public:
  explicit Tiles(std::int64_t columns) {
    struct alignas(64) Layout {
      std::uint8_t palette;
      std::uint8_t start_row;
      std::uint8_t reserved[14];
      std::uint16_t row_bytes[16];
      std::uint8_t rows[16];
    } layout = {};
    layout.palette = 1;
    for (int i = 0; i < 8; ++i) {
      layout.rows[i] = 16;
      layout.row_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? 64 : 4 * columns);
    }
    finish_stores();
    _tile_loadconfig(&layout);
    finish_stores();
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// A few tiles of weights of 32 rows, and the inputs of 16 or 32 tokens that they meet.
struct TileStep {
  const std::uint16_t* weights;
  const float* inputs;
  const float* more_inputs;   ///< of the tokens behind those
  std::int64_t tile_floats;   ///< from inputs to the next
  std::int64_t column_bytes;  ///< of a row of inputs
  const float* soon;          ///< inputs that will be wanted with the next panel; null: nobody asks for them
};

// Of the tiles of kRows x 16 rows and kGroups x 16 tokens; in memory those of a group lie together.
template <int kRows, int kGroups>
void zero_sums() {
  _tile_zero(0);
  if constexpr (kGroups == 2) _tile_zero(1);
  if constexpr (kRows == 2) _tile_zero(2);
  if constexpr (kRows == 2 && kGroups == 2) _tile_zero(3);
}
template <int kRows, int kGroups>
void load_sums(const float* sums) {
  _tile_loadd(0, sums, 64);
  if constexpr (kRows == 2) _tile_loadd(2, sums + kTileFloats, 64);
  if constexpr (kGroups == 2) _tile_loadd(1, sums + 2 * kTileFloats, 64);
  if constexpr (kRows == 2 && kGroups == 2) _tile_loadd(3, sums + 3 * kTileFloats, 64);
}
template <int kRows, int kGroups>
void store_sums(float* sums) {
  _tile_stored(0, sums, 64);
  if constexpr (kRows == 2) _tile_stored(2, sums + kTileFloats, 64);
  if constexpr (kGroups == 2) _tile_stored(1, sums + 2 * kTileFloats, 64);
  if constexpr (kRows == 2 && kGroups == 2) _tile_stored(3, sums + 3 * kTileFloats, 64);
}

template <int kRows, int kGroups>
VN_INLINED inline void add_products(const TileStep& step, std::int64_t tiles) {
  const std::uint16_t* weights = step.weights;
  const float* inputs = step.inputs;
  const float* more_inputs = step.more_inputs;
  const float* soon = step.soon;
  for (std::int64_t i = 0; i < tiles; ++i) {
    if (kGroups == 2 && soon != nullptr) {
      for (int line = 0; line < 16; ++line) _mm_prefetch(reinterpret_cast<const char*>(soon + line * 16), _MM_HINT_T1);
      soon += step.tile_floats;
    }
    _tile_loadd(6, inputs, step.column_bytes);
    _tile_loadd(4, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kGroups == 2) {
      _tile_loadd(7, more_inputs, step.column_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      _tile_loadd(5, weights + kPanelTiles * kTileNumbers, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRows == 2 && kGroups == 2) _tile_dpbf16ps(3, 5, 7);
    weights += kTileNumbers;
    inputs += step.tile_floats;
    more_inputs += step.tile_floats;
  }
}

/// Scratch of a call.
struct TileRoom {
  std::uint16_t* panel;  ///< [2, kPanelTiles, kTileNumbers]: numbers of 32 rows, or of 16 and the next 16
  float* totals;         ///< [blocks of 32 rows, groups of 16 tokens, 32, 16]
  alignas(64) float scales[kPanelValues / kChunkValues][kTileBlockRows];  ///< of each chunk of the panel

  [[nodiscard]] std::uint16_t* half(std::int64_t i) const { return panel + i * kPanelTiles * kTileNumbers; }
};

/// Values [k, k + count) of a row.
struct RowPart {
  std::int64_t row;
  std::int64_t k;
  std::int64_t count;
};

/// A part of a row as row `r` of the panel. Returns its flags.
template <class Source, class Decoder>
VN_INLINED inline unsigned decode_row_of_tiles(const typename Decoder::Constants& constants, const WeightRows& rows,
                                               RowPart part, TileRoom& room, std::int64_t r) {
  const auto [row, k, count] = part;
  RowReader<Source> reader;
  const std::int64_t ahead = 16 * rows.row_stride;
  std::uint16_t* to = room.half(r / 16) + r % 16 * kTileValues;
  Cursor<Source> cursor;
  const std::int64_t whole = Decoder::kFillsScales ? reader.start(rows, row, k, count, cursor)
                                                   : reader.start_unscaled(rows, row, k, count, cursor);
  Decoder decoder(constants, rows, row, k, count);
  for (std::int64_t i = 0; i < whole; ++i, to += kChunkTiles * kTileNumbers) {
    for (int line = 0; line < Source::kChunkBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(cursor.at + ahead + line), _MM_HINT_T1);
    }
    cursor.watch.see(cursor.at);
    decoder.chunk(cursor, to);
    if constexpr (Decoder::kScaled) room.scales[i][r] = decoder.chunk_scale(cursor);
    cursor.advance();
  }
  const std::int64_t rest = count - whole * Source::kValues;
  if (rest > 0) {
    reader.complete(rest, cursor);
    decoder.chunk(cursor, to);
    if constexpr (Decoder::kScaled) room.scales[whole][r] = decoder.chunk_scale(cursor);
  }
  return decoder.flags(cursor);
}

/// totals += sums of a chunk times the scales of the rows. With 32 rows tiles have all 16 columns; else those that they
/// don't have are zeros.
template <int kRows, int kGroups>
void add_scaled(const float* scales, float* totals) {
  alignas(64) float sums[kRows * kGroups * kTileFloats];
  if constexpr (kRows == 1) __builtin_memset(sums, 0, sizeof(sums));
  store_sums<kRows, kGroups>(sums);
  for (int group = 0; group < kGroups; ++group) {
    for (std::int64_t r = 0; r < 16 * kRows; ++r) {
      const std::int64_t at = group * 2 * kTileFloats + r * 16;
      Lanes::fma(Lanes::load(sums + at), Lanes::all(scales[r]), Lanes::load(totals + at)).store(totals + at);
    }
  }
}

/// The same for 16 rows and one token, of which tiles have a column only: in `column`, row by row.
void add_scaled_column(const float* scales, float* column) {
  alignas(64) float sums[16];
  _tile_stored(0, sums, 4);
  Lanes::fma(Lanes::load(sums), Lanes::load(scales), Lanes::load(column)).store(column);
}

/// A panel of rows times inputs of tokens: added to totals, or to the sums in tiles if there's no scale.
template <class Decoder, int kRows, int kGroups>
VN_INLINED inline void multiply_panel(const TileRoom& room, TileStep step, std::int64_t chunks, float* totals) {
  if constexpr (!Decoder::kScaled) {
    add_products<kRows, kGroups>(step, chunks * kChunkTiles);
  } else {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      zero_sums<kRows, kGroups>();
      add_products<kRows, kGroups>(step, kChunkTiles);
      add_scaled<kRows, kGroups>(room.scales[chunk], totals);
      step.weights += kChunkTiles * kTileNumbers;
      step.inputs += kChunkTiles * step.tile_floats;
      step.more_inputs += kChunkTiles * step.tile_floats;
      if (step.soon != nullptr) step.soon += kChunkTiles * step.tile_floats;
    }
  }
}

/// A call cut into panels.
template <class Source, class Decoder>
struct TileProducts {
  const ManyProducts& args;
  TileRoom& room;
  std::uint8_t* flags;
  std::int64_t groups = (args.tokens + kTileColumns - 1) / kTileColumns;  ///< of tokens

  [[nodiscard]] std::int64_t chunks(std::int64_t k) const { return (count(k) + kChunkValues - 1) / kChunkValues; }
  [[nodiscard]] std::int64_t count(std::int64_t k) const {
    return args.rows.cols - k < kPanelValues ? args.rows.cols - k : kPanelValues;
  }
  /// Panel k of a row, as row r of the panel.
  VN_INLINED inline void decode(const typename Decoder::Constants& constants, std::int64_t row, std::int64_t k,
                                std::int64_t r) const {
    const unsigned found = decode_row_of_tiles<Source, Decoder>(constants, args.rows, {row, k, count(k)}, room, r);
    if (found != kFits) flags[row - args.begin] = static_cast<std::uint8_t>(flags[row - args.begin] | found);
  }
  [[nodiscard]] TileStep step(std::int64_t k, std::int64_t group) const {
    const std::int64_t width = args.width;
    const std::int64_t at = k / 2 * width;  // a float is a pair
    const std::int64_t next = group + 1 < groups ? group + 1 : group;
    return {room.panel,
            args.x[group * kTileColumns] + at,
            args.x[next * kTileColumns] + at,
            kTileValues / 2 * width,
            4 * width,
            nullptr};
  }
  /// Those of row r of the call and of the rows behind it, r being a multiple of 16.
  [[nodiscard]] float* totals(std::int64_t r, std::int64_t group) const {
    return room.totals + ((r / kTileBlockRows * groups + group) * 2 + r / 16 % 2) * kTileFloats;
  }

  /// At most 16 tokens: 16 rows at a time, whose sums stay in their tile. While a panel is multiplied, tile by tile,
  /// the next one is decoded, row by row, so that tiles and vectors work at the same time.
  void multiply_one_group() const {
    const typename Decoder::Constants constants;
    alignas(64) float column[16] = {};
    std::int64_t begin = args.begin - 16;  // no panel yet
    std::int64_t k = args.rows.cols;
    for (std::int64_t half = 0; begin < args.end; half = 1 - half) {
      const bool ends = k + kPanelValues >= args.rows.cols;
      const std::int64_t next_begin = ends ? begin + 16 : begin;
      const std::int64_t next_k = ends ? 0 : k + kPanelValues;
      const std::int64_t next_rows = args.end - next_begin;
      const std::int64_t tiles = begin < args.begin ? 0 : chunks(k) * kChunkTiles;
      TileStep one = step(k, 0);
      one.weights = room.half(half);
      float* sums = totals(begin < args.begin ? 0 : begin - args.begin, 0);
      if (k == 0) _tile_zero(0);
      for (std::int64_t i = 0; i < kPanelTiles; ++i) {
        finish_stores();
        if (i < tiles) {
          if (Decoder::kScaled && i % kChunkTiles == 0) _tile_zero(0);
          add_products<1, 1>(one, 1);
          one.weights += kTileNumbers;
          one.inputs += one.tile_floats;
          if (Decoder::kScaled && i % kChunkTiles == kChunkTiles - 1) {
            const float* scales = room.scales[i / kChunkTiles] + 16 * half;
            if (args.width == 1)
              add_scaled_column(scales, column);
            else
              add_scaled<1, 1>(scales, sums);
          }
        }
        if (i < next_rows) decode(constants, next_begin + i, next_k, 16 * (1 - half) + i);
      }
      if (ends && tiles != 0 && !Decoder::kScaled) store_sums<1, 1>(sums);
      if (ends && tiles != 0 && Decoder::kScaled && args.width == 1) {
        for (int r = 0; r < 16; ++r) {
          sums[r * 16] = column[r];
          column[r] = 0.0F;
        }
      }
      begin = next_begin;
      k = next_k;
    }
  }
  template <int kGroups>
  void add_panel(std::int64_t begin, std::int64_t k, std::int64_t group) const {
    float* sums = totals(begin - args.begin, group);
    if constexpr (!Decoder::kScaled) load_sums<2, kGroups>(sums);
    TileStep here = step(k, group);
    // The next panel of inputs comes from a far cache: it is asked for on the way, half of it with each block of rows.
    const float* half = (begin - args.begin) / kTileBlockRows % 2 == 0 ? here.inputs : here.more_inputs;
    if (k + kPanelValues < args.rows.cols) here.soon = half + kPanelTiles * here.tile_floats;
    multiply_panel<Decoder, 2, kGroups>(room, here, chunks(k), sums);
    if constexpr (!Decoder::kScaled) store_sums<2, kGroups>(sums);
  }
  /// Every panel of weights meets all tokens.
  void multiply_groups() const {
    const typename Decoder::Constants constants;
    for (std::int64_t k = 0; k < args.rows.cols; k += kPanelValues) {
      for (std::int64_t begin = args.begin; begin < args.end; begin += kTileBlockRows) {
        for (std::int64_t r = 0; r < kTileBlockRows && begin + r < args.end; ++r) decode(constants, begin + r, k, r);
        finish_stores();
        std::int64_t group = 0;
        for (; group + 2 <= groups; group += 2) add_panel<2>(begin, k, group);
        if (group < groups) add_panel<1>(begin, k, group);
      }
    }
  }
};

}  // namespace
