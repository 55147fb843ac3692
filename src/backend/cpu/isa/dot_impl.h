// Products of decoded weight rows with activations over Lanes. See kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"

namespace {

/// A block of at most kTileRows x kTileTokens products; pointers to where its rows begin.
template <int kRows, int kTokens>
struct DotBlock {
  const float* w[kRows];
  const float* x[kTokens];
  Lanes sums[kRows][kTokens];

  void clear() {
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) sums[r][t] = Lanes::all(0.0F);
    }
  }

  /// Adds the products of columns [begin, end): whole vectors in order, then the rest.
  void add(std::int64_t begin, std::int64_t end) {
    std::int64_t k = begin;
    for (; k + 16 <= end; k += 16) {
      Lanes inputs[kTokens];
      for (int t = 0; t < kTokens; ++t) inputs[t] = Lanes::load(x[t] + k);
      for (int r = 0; r < kRows; ++r) {
        const Lanes weights = Lanes::load(w[r] + k);
        for (int t = 0; t < kTokens; ++t) sums[r][t] = Lanes::fma(weights, inputs[t], sums[r][t]);
      }
    }
    if (k == end) return;
    for (int r = 0; r < kRows; ++r) {
      const Lanes weights = Lanes::load_first(w[r] + k, end - k);
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = Lanes::fma(weights, Lanes::load_first(x[t] + k, end - k), sums[r][t]);
      }
    }
  }
};

template <int kRows, int kTokens>
void dot_block(const vernier_isa::DotTile& tile, std::int64_t row, std::int64_t token) {
  DotBlock<kRows, kTokens> block;
  for (int r = 0; r < kRows; ++r) block.w[r] = tile.w + (row + r) * tile.w_stride;
  for (int t = 0; t < kTokens; ++t) block.x[t] = tile.x[token + t];
  float* products = tile.products + row * tile.product_stride + token;
  block.clear();
  if (tile.segment == 0) {
    block.add(0, tile.cols);
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) products[r * tile.product_stride + t] = block.sums[r][t].sum();
    }
    return;
  }
  Lanes totals[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) totals[r][t] = Lanes::all(0.0F);
  }
  const float* scales = tile.segment_scales + row * tile.segment_stride;
  for (std::int64_t begin = 0; begin < tile.cols; begin += tile.segment, ++scales) {
    const std::int64_t end = begin + tile.segment < tile.cols ? begin + tile.segment : tile.cols;
    block.clear();
    block.add(begin, end);
    for (int r = 0; r < kRows; ++r) {
      const Lanes scale = Lanes::all(scales[r * tile.segment_stride]);
      for (int t = 0; t < kTokens; ++t) totals[r][t] = Lanes::fma(block.sums[r][t], scale, totals[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) products[r * tile.product_stride + t] = totals[r][t].sum();
  }
}

template <int kTokens>
void dot_rows(const vernier_isa::DotTile& tile, std::int64_t token) {
  std::int64_t row = 0;
  for (; row + Lanes::kTileRows <= tile.rows; row += Lanes::kTileRows) {
    dot_block<Lanes::kTileRows, kTokens>(tile, row, token);
  }
  for (; row < tile.rows; ++row) dot_block<1, kTokens>(tile, row, token);
}

void dot_tile(const vernier_isa::DotTile& tile) {
  std::int64_t token = 0;
  for (; token + Lanes::kTileTokens <= tile.tokens; token += Lanes::kTileTokens) {
    dot_rows<Lanes::kTileTokens>(tile, token);
  }
  for (; token < tile.tokens; ++token) dot_rows<1>(tile, token);
}

}  // namespace
