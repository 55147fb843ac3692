// Scores, softmax and weighted sums over fp32 tiles of keys and values: blocks of rows that keep their sums in
// registers. A row's sums run in the order of components and of positions, whatever block it is in. See kernels.h for
// the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/inlining.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/math_impl.h"

namespace {

using vernier_isa::kTileKeys;

/// Calls function.template operator()<n>(begin) for blocks of n <= Lanes::kAttentionRows rows, of about equal sizes.
template <class Function>
void for_row_blocks(std::int64_t rows, Function function) {
  const std::int64_t blocks = (rows + Lanes::kAttentionRows - 1) / Lanes::kAttentionRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = rows * block / blocks;
    switch (rows * (block + 1) / blocks - begin) {
      case 1: function.template operator()<1>(begin); break;
      case 2: function.template operator()<2>(begin); break;
      case 3:
        if constexpr (Lanes::kAttentionRows >= 3) function.template operator()<3>(begin);
        break;
      case 4:
        if constexpr (Lanes::kAttentionRows >= 4) function.template operator()<4>(begin);
        break;
      case 5:
        if constexpr (Lanes::kAttentionRows >= 5) function.template operator()<5>(begin);
        break;
      default:
        if constexpr (Lanes::kAttentionRows >= 6) function.template operator()<6>(begin);
        break;
    }
  }
}

/// Calls function.template operator()<rows, vectors>(row, column) for blocks of `rows` x `columns`, a multiple of 16.
template <class Function>
void for_blocks(std::int64_t rows, std::int64_t columns, Function function) {
  for_row_blocks(rows, [&]<int kRows>(std::int64_t row) {
    constexpr std::int64_t kColumns = Lanes::kAttentionVectors * 16;
    std::int64_t column = 0;
    for (; column + kColumns <= columns; column += kColumns) {
      function.template operator()<kRows, Lanes::kAttentionVectors>(row, column);
    }
    for (; column < columns; column += 16) function.template operator()<kRows, 1>(row, column);
  });
}

/// kRows x kVectors sums of 16.
template <int kRows, int kVectors>
struct SumBlock {
  Lanes sums[kRows][kVectors];

  /// Adds the products of one factor a row and one vector a column.
  template <class Factor>
  void add(const Lanes (&columns)[kVectors], Factor factor) {
    for (int r = 0; r < kRows; ++r) {
      const Lanes broadcast = Lanes::all(factor(r));
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Lanes::fma(broadcast, columns[v], sums[r][v]);
    }
  }
  template <class Factor>
  void add(const float* vectors, Factor factor) {
    Lanes columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = Lanes::load(vectors + v * 16);
    add(columns, factor);
  }
};

/// Asks for one line of the next rows after another. Evenly spread requests don't hold up the arithmetic.
struct LineRequests {
  vernier_isa::NextRows next;
  std::int64_t row = 0;
  std::int64_t at = 0;

  VN_INLINED void ask() {  // inlined, as GCC drops calls of functions that do nothing but prefetch
    if (row >= next.count) return;
    __builtin_prefetch(next.rows[row] + at, 0, 2);
    at += 64;
    if (at >= next.bytes) {
      at = 0;
      ++row;
    }
  }
};

template <int kRows, int kVectors>
void score_block(const vernier_isa::ScoreTile& tile, std::int64_t row, std::int64_t column) {
  SumBlock<kRows, kVectors> block;
  const float* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = tile.q[row + r];
    for (int v = 0; v < kVectors; ++v) block.sums[r][v] = Lanes::all(0.0F);
  }
  const float* keys = tile.keys + column;
  LineRequests requests = {tile.next};
  if (row != 0 || column != 0) requests.next.count = 0;
  for (std::int64_t d = 0; d < tile.dim; ++d, keys += kTileKeys) {
    block.add(keys, [&](int r) { return q[r][d]; });
    requests.ask();
  }
  for (int r = 0; r < kRows; ++r) {
    float* scores = tile.scores + (row + r) * kTileKeys + column;
    for (int v = 0; v < kVectors; ++v) block.sums[r][v].store(scores + v * 16);
  }
}

void score_tile(const vernier_isa::ScoreTile& tile) {
  for_blocks(tile.rows, (tile.count + 15) / 16 * 16,
             [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column) {
               score_block<kRows, kVectors>(tile, row, column);
             });
}

template <int kRows, int kVectors>
void load_sums(const vernier_isa::ValueTile& tile, std::int64_t row, std::int64_t column,
               SumBlock<kRows, kVectors>& block) {
  for (int r = 0; r < kRows; ++r) {
    const Lanes keep = Lanes::all(tile.keep[row + r]);
    const float* sums = tile.sums + (row + r) * tile.stride + column;
    for (int v = 0; v < kVectors; ++v) block.sums[r][v] = Lanes::load(sums + v * 16) * keep;
  }
}

template <int kRows, int kVectors>
void store_sums(const vernier_isa::ValueTile& tile, std::int64_t row, std::int64_t column,
                const SumBlock<kRows, kVectors>& block) {
  for (int r = 0; r < kRows; ++r) {
    float* sums = tile.sums + (row + r) * tile.stride + column;
    for (int v = 0; v < kVectors; ++v) block.sums[r][v].store(sums + v * 16);
  }
}

void add_values(const vernier_isa::ValueTile& tile) {
  for_blocks(tile.rows, tile.stride, [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column) {
    SumBlock<kRows, kVectors> block;
    load_sums(tile, row, column, block);
    const float* values = tile.values + column;
    const float* weights = tile.weights + row * kTileKeys;
    for (std::int64_t i = 0; i < tile.count; ++i, values += tile.stride) {
      block.add(values, [&](int r) { return weights[r * kTileKeys + i]; });
    }
    store_sums(tile, row, column, block);
  });
}

/// Scales and caps a row of scores, fills it up with -infinity to a multiple of 16, and returns the largest.
float finish_scores(const vernier_isa::SoftmaxTile& tile, float* scores, float largest) {
  const Lanes scale = Lanes::all(tile.scale);
  Lanes top = Lanes::all(largest);
  for (std::int64_t i = 0; i < tile.count; i += 16) {
    Lanes x = Lanes::load(scores + i) * scale;
    if (tile.soft_cap > 0.0F) {
      const Lanes cap = Lanes::all(tile.soft_cap);
      x = hyperbolic_tangent(x / cap) * cap;
    }
    if (i + 16 > tile.count) x = Lanes::keep_first(x, tile.count - i, -__builtin_inff());
    x.store(scores + i);
    top = Lanes::largest(top, x);
  }
  return top.largest();
}

/// scores = exp(scores - largest); returns their sum. Weights too small for a normal float become zeros: beside the
/// largest, which is 1, they are nothing, but processors are slow at subnormals.
float raise_scores(float* scores, std::int64_t count, float largest) {
  constexpr float kSmallest = -87.0F;
  const Lanes top = Lanes::all(largest);
  Lanes sum = Lanes::all(0.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    const Lanes x = Lanes::load(scores + i) - top;
    const Lanes weights =
        Lanes::select_less(x, kSmallest, Lanes::all(0.0F), exponential(Lanes::at_least(x, kSmallest)));
    weights.store(scores + i);
    sum = sum + weights;
  }
  return sum.sum();
}

void softmax_tile(const vernier_isa::SoftmaxTile& tile) {
  for (std::int64_t first = 0; first < tile.rows; first += 16) {
    const std::int64_t rows = tile.rows - first < 16 ? tile.rows - first : 16;
    float sums[16] = {};
    const Lanes before = Lanes::load_first(tile.largest + first, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* scores = tile.scores + (first + r) * kTileKeys;
      float& largest = tile.largest[first + r];
      largest = finish_scores(tile, scores, largest);
      sums[r] = raise_scores(scores, tile.count, largest);
    }
    const Lanes keep = exponential(before - Lanes::load_first(tile.largest + first, rows));
    keep.store_first(tile.keep + first, rows);
    Lanes::fma(Lanes::load_first(tile.total + first, rows), keep, Lanes::load(sums))
        .store_first(tile.total + first, rows);
  }
}

}  // namespace
