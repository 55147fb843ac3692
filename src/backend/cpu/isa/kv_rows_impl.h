// Cached keys and values as fp32 tiles: keys transposed, so that a vector holds one component of 16 keys, values as
// they lie. See kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/attention_impl.h"
#include "backend/cpu/isa/inlining.h"
#include "backend/cpu/isa/kernels.h"

namespace {

using vernier_isa::KvRows;
using vernier_isa::KvType;

template <KvType kType>
struct KvElements {
  static constexpr int kBytes = kType == KvType::kF32 ? 4 : kType == KvType::kBF16 ? 2 : 1;
  /// Components that a transposed block of 16 vectors holds: what fits bf16 is transposed in pairs, as 32-bit words.
  static constexpr int kBlockDims = kType == KvType::kF32 ? 16 : 32;

  static Lanes load(const std::byte* from) {
    if constexpr (kType == KvType::kF32) {
      return Lanes::load_words(from);
    } else if constexpr (kType == KvType::kBF16) {
      return Lanes::load_bf16(from);
    } else {
      return Lanes::load_e4m3(from);
    }
  }
  /// What a block's row is transposed as.
  static Lanes load_block_row(const std::byte* from) {
    if constexpr (kType == KvType::kF8E4M3) {
      return Lanes::pair_bf16(load(from), load(from + 16));
    } else {
      return Lanes::load_words(from);
    }
  }
  /// Which component of the block the low, or the high half of word j is.
  static std::int64_t low_dim(std::int64_t j) { return kType == KvType::kBF16 ? 2 * j : j; }
  static std::int64_t high_dim(std::int64_t j) { return kType == KvType::kBF16 ? 2 * j + 1 : j + 16; }
};

/// The first `count` elements, then zeros: a copy to load whole vectors from.
struct PaddedElements {
  std::byte bytes[64] = {};
  PaddedElements(const std::byte* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) bytes[i] = from[i];
  }
};

/// `dims` components from `begin` on of 16 keys, transposed; `keys` is where the first one's row begins.
template <KvType kType>
void store_block(Lanes (&block)[16], std::int64_t dims, float* keys) {
  using Elements = KvElements<kType>;
  Lanes::transpose(block);
  for (std::int64_t j = 0; j < 16; ++j) {
    if constexpr (kType == KvType::kF32) {
      if (j < dims) block[j].store(keys + j * kTileKeys);
    } else {
      const std::int64_t low = Elements::low_dim(j);
      const std::int64_t high = Elements::high_dim(j);
      if (low < dims) Lanes::low_bf16(block[j]).store(keys + low * kTileKeys);
      if (high < dims) Lanes::high_bf16(block[j]).store(keys + high * kTileKeys);
    }
  }
}

/// Where row i of those that come next begins; a row at hand where there is none.
const std::byte* next_row(const KvRows& from, std::int64_t i) {
  return i >= from.next_begin && i < from.next_end ? from.next_rows[i] : from.rows[0];
}

/// Asks for the next rows' share of what is being read: they lie apart, so no hardware would guess them, and evenly
/// spread requests don't hold up the arithmetic.
template <int kBytes>
VN_INLINED inline void prefetch(const std::byte* at) {  // GCC drops calls of functions that only prefetch
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

template <KvType kType>
void expand_keys_of(const KvRows& from, float* keys) {
  using Elements = KvElements<kType>;
  constexpr std::int64_t kDims = Elements::kBlockDims;
  for (std::int64_t first = 0; first < from.count; first += 16) {
    const std::byte* rows[16];
    const std::byte* next[16];
    for (std::int64_t i = 0; i < 16; ++i) {
      rows[i] = from.rows[first + i < from.count ? first + i : from.count - 1];
      next[i] = next_row(from, first + i);
    }
    Lanes block[16];
    std::int64_t d = 0;
    for (; d + kDims <= from.dim; d += kDims) {
      for (int i = 0; i < 16; ++i) {
        block[i] = Elements::load_block_row(rows[i] + d * Elements::kBytes);
        prefetch<kDims * Elements::kBytes>(next[i] + d * Elements::kBytes);
      }
      store_block<kType>(block, kDims, keys + d * kTileKeys + first);
    }
    if (d == from.dim) continue;
    for (int i = 0; i < 16; ++i) {
      const PaddedElements padded(rows[i] + d * Elements::kBytes, (from.dim - d) * Elements::kBytes);
      block[i] = Elements::load_block_row(padded.bytes);
    }
    store_block<kType>(block, from.dim - d, keys + d * kTileKeys + first);
  }
}

template <KvType kType>
void expand_values_of(const KvRows& from, float* values) {
  using Elements = KvElements<kType>;
  for (std::int64_t i = 0; i < from.count; ++i) {
    const std::byte* row = from.rows[i];
    const std::byte* next = next_row(from, i);
    std::int64_t d = 0;
    for (; d + 16 <= from.dim; d += 16, values += 16) {
      Elements::load(row + d * Elements::kBytes).store(values);
      if (d * Elements::kBytes % 64 == 0) prefetch<64>(next + d * Elements::kBytes);
    }
    if (d == from.dim) continue;
    const PaddedElements padded(row + d * Elements::kBytes, (from.dim - d) * Elements::kBytes);
    Elements::load(padded.bytes).store(values);
    values += 16;
  }
}

/// What `SumBlock` adds, read from where the cache keeps it.
template <KvType kType, int kRows, int kVectors>
void add_row_block(const KvRows& from, const vernier_isa::ValueTile& tile, std::int64_t row, std::int64_t column) {
  using Elements = KvElements<kType>;
  SumBlock<kRows, kVectors> block;
  load_sums(tile, row, column, block);
  const float* weights = tile.weights + row * kTileKeys;
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const std::byte* value = from.rows[i] + column * Elements::kBytes;
    if (row == 0) prefetch<kVectors * 16 * Elements::kBytes>(next_row(from, i) + column * Elements::kBytes);
    Lanes columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = Elements::load(value + v * 16 * Elements::kBytes);
    block.add(columns, [&](int r) { return weights[r * kTileKeys + i]; });
  }
  store_sums(tile, row, column, block);
}

template <KvType kType>
void add_value_rows_of(const KvRows& from, const vernier_isa::ValueTile& tile) {
  for_blocks(tile.rows, tile.stride, [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column) {
    add_row_block<kType, kRows, kVectors>(from, tile, row, column);
  });
}

void add_value_rows(const KvRows& from, const vernier_isa::ValueTile& tile) {
  switch (from.type) {
    case KvType::kF32: return add_value_rows_of<KvType::kF32>(from, tile);
    case KvType::kBF16: return add_value_rows_of<KvType::kBF16>(from, tile);
    case KvType::kF8E4M3: return add_value_rows_of<KvType::kF8E4M3>(from, tile);
  }
}

void expand_keys(const KvRows& from, float* keys) {
  switch (from.type) {
    case KvType::kF32: return expand_keys_of<KvType::kF32>(from, keys);
    case KvType::kBF16: return expand_keys_of<KvType::kBF16>(from, keys);
    case KvType::kF8E4M3: return expand_keys_of<KvType::kF8E4M3>(from, keys);
  }
}

void expand_values(const KvRows& from, float* values) {
  switch (from.type) {
    case KvType::kF32: return expand_values_of<KvType::kF32>(from, values);
    case KvType::kBF16: return expand_values_of<KvType::kBF16>(from, values);
    case KvType::kF8E4M3: return expand_values_of<KvType::kF8E4M3>(from, values);
  }
}

}  // namespace
