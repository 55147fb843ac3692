// Attention over paged keys and values. The positions of a sequence are cut into splits, and those into tiles, at fixed
// multiples: where a query stands alone decides how its sums are ordered, so that neither chunks, company nor threads
// change a bit of its result. All query heads of a KV head, and as many tokens as make a good block, share one reading
// of a tile.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/input_rounding.h"
#include "backend/kv_cell.h"

namespace vernier {
namespace {

using vernier_isa::Kernels;
using vernier_isa::kTileKeys;

/// Positions of a split: what one thread handles of a long sequence that has too few rows to go round.
constexpr std::int64_t kSplitKeys = 256;
/// Rows (tokens times query heads of a KV head) that share the expansion of a tile to fp32.
constexpr std::int64_t kBlockRows = 96;
/// Rows up to which a value is better converted for each block of rows than once for all.
constexpr std::int64_t kFewRows = 12;
/// Memory for results of splits; beyond it there are rows enough for all threads anyway.
constexpr std::int64_t kMaxPartialFloats = std::int64_t{16} << 20;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

vernier_isa::KvType kv_type(DType type) {
  if (type == DType::kF32) return vernier_isa::KvType::kF32;
  return type == DType::kBF16 ? vernier_isa::KvType::kBF16 : vernier_isa::KvType::kF8E4M3;
}

/// Neighbouring tokens of a slice with all query heads of one KV head. Row r is token r / group, head r % group.
struct Block {
  const SequenceSlice* slice = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t first_token = 0;  ///< of the slice
  std::int64_t num_tokens = 0;

  [[nodiscard]] std::int64_t first_position() const { return slice->past + first_token; }
  [[nodiscard]] std::int64_t last_position() const { return first_position() + num_tokens - 1; }
};

/// A split of a block, or nothing.
struct BlockSplit {
  const Block* block = nullptr;
  std::int64_t split = 0;
};

/// Running softmaxes of some rows: over a split, or over all of them.
struct Sums {
  float* largest;
  float* total;
  float* values;  ///< [rows, stride]
};

/// What the blocks of a call share.
class Attention {
 public:
  Attention(const Kernels& kernels, const AttentionArgs& args, Precision precision)
      : kernels_(kernels),
        args_(args),
        precision_(precision),
        group_(args.num_heads / args.kv.num_kv_heads),
        stride_((args.kv.head_dim + 15) / 16 * 16),
        tokens_(std::max<std::int64_t>(kBlockRows / group_, 1)),
        element_bytes_(kv_element_bytes(args.kv.dtype)) {}

  [[nodiscard]] std::int64_t max_tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t first_key(std::int64_t position) const {
    return args_.window > 0 ? std::max<std::int64_t>(0, position + 1 - args_.window) : 0;
  }
  [[nodiscard]] std::int64_t first_split(const Block& block) const {
    return first_key(block.first_position()) / kSplitKeys;
  }
  [[nodiscard]] std::int64_t end_split(const Block& block) const { return block.last_position() / kSplitKeys + 1; }
  [[nodiscard]] std::int64_t rows(const Block& block) const { return block.num_tokens * group_; }
  /// Floats that the sums of a block's rows take.
  [[nodiscard]] std::int64_t sums_size(const Block& block) const { return rows(block) * (stride_ + 2); }
  [[nodiscard]] Sums sums_at(const Block& block, float* at) const {
    return {.largest = at, .total = at + rows(block), .values = at + 2 * rows(block)};
  }
  /// Floats of scratch that a worker needs, a multiple of 16.
  [[nodiscard]] std::int64_t scratch_size() const { return queries_offset() + padded_rows() * stride_; }
  /// A worker's room for the sums of a split.
  [[nodiscard]] float* own_sums(float* scratch) const { return scratch + sums_offset(); }

  /// `next` is what the same thread will probably work on then.
  void attend_split(BlockSplit what, BlockSplit next, Sums sums, float* scratch) const;
  /// The results of a block from the sums of its splits, which `sums_of(split)` yields.
  template <class SumsOf>
  void merge_splits(const Block& block, float* scratch, SumsOf sums_of) const {
    float* largest = scratch + merge_offset();
    float* total = largest + padded_rows();
    start(block, largest, total);
    for (std::int64_t split = first_split(block); split < end_split(block); ++split) {
      merge(block, sums_of(split), largest, total);
    }
    finish(block, total);
  }

 private:
  // A worker's scratch: a tile of keys, one of values, scores, factors of old sums; then sums of a split; then the
  // merged largest scores and totals; then rounded queries.
  [[nodiscard]] std::int64_t padded_rows() const { return (tokens_ * group_ + 15) / 16 * 16; }
  [[nodiscard]] std::int64_t keep_offset() const { return 2 * tile_size() + padded_rows() * kTileKeys; }
  [[nodiscard]] std::int64_t sums_offset() const { return keep_offset() + padded_rows(); }
  [[nodiscard]] std::int64_t merge_offset() const { return sums_offset() + padded_rows() * (stride_ + 2); }
  [[nodiscard]] std::int64_t queries_offset() const { return merge_offset() + 2 * padded_rows(); }
  void start(const Block& block, float* largest, float* total) const;
  void merge(const Block& block, const Sums& split, float* largest, float* total) const;
  void finish(const Block& block, const float* total) const;
  /// Scratch of one tile, keys or values, with room for vectors that begin at its last number.
  [[nodiscard]] std::int64_t tile_size() const { return kTileKeys * stride_ + 16; }
  [[nodiscard]] std::int64_t head_of(const Block& block, std::int64_t row) const {
    return block.kv_head * group_ + row % group_;
  }
  [[nodiscard]] const float* query(const Block& block, std::int64_t row) const {
    return args_.q.row(block.slice->first_row + block.first_token + row / group_) +
           head_of(block, row) * args_.kv.head_dim;
  }
  [[nodiscard]] float* result(const Block& block, std::int64_t row) const {
    return args_.y.row(block.slice->first_row + block.first_token + row / group_) +
           head_of(block, row) * args_.kv.head_dim;
  }
  struct Rows {
    const std::byte* keys[kTileKeys];
    const std::byte* values[kTileKeys];
    std::int64_t count;
  };
  void round_queries(const Block& block, float* scratch) const;
  /// The positions of a split that its block's rows see.
  [[nodiscard]] Range keys_of(BlockSplit what) const;
  [[nodiscard]] Rows find_rows(const Block& block, Range positions) const;
  [[nodiscard]] vernier_isa::KvRows key_rows(const Rows& rows, const Rows& next) const;
  [[nodiscard]] vernier_isa::KvRows value_rows(const Rows& rows, const Rows& next) const;
  void score(Range rows, Range columns, vernier_isa::NextRows next, float* scratch) const;
  void weigh(Range rows, std::int64_t count, const Sums& sums, float* scratch) const;
  [[nodiscard]] vernier_isa::ValueTile value_tile(Range rows, Range columns, const Sums& sums, float* scratch) const;
  void add_to_few(const Block& block, const Rows& tile, const Rows& next, const Sums& sums, float* scratch) const;
  void add_seen_columns(const Block& block, Range keys, const Sums& sums, float* scratch) const;
  void add_columns(Range rows, Range columns, const Sums& sums, float* scratch) const;

  const Kernels& kernels_;
  const AttentionArgs& args_;
  Precision precision_;
  std::int64_t group_;
  std::int64_t stride_;
  std::int64_t tokens_;
  std::int64_t element_bytes_;
};

void Attention::round_queries(const Block& block, float* scratch) const {
  float* to = scratch + queries_offset();
  for (std::int64_t r = 0; r < rows(block); ++r, to += stride_) {
    const float* q = query(block, r);
    for (std::int64_t d = 0; d < args_.kv.head_dim; ++d) to[d] = round_input(q[d], precision_);
  }
}

Range Attention::keys_of(BlockSplit what) const {
  const Block& block = *what.block;
  return {std::max(what.split * kSplitKeys, first_key(block.first_position())),
          std::min((what.split + 1) * kSplitKeys, block.last_position() + 1)};
}

/// Where the elements of those positions lie that belong to the first one's tile.
Attention::Rows Attention::find_rows(const Block& block, Range positions) const {
  const KvLayer& kv = args_.kv;
  const std::int64_t begin = positions.begin;
  Rows rows;
  rows.count = std::min(positions.end, begin / kTileKeys * kTileKeys + kTileKeys) - begin;
  const std::int64_t step = std::int64_t{kv.num_kv_heads} * kv.head_dim * element_bytes_;
  std::int64_t offset = 0;
  for (std::int64_t i = 0, left = 0; i < rows.count; ++i, --left, offset += step) {
    if (left == 0) {  // another page
      offset = kv_index(kv, *block.slice, begin + i, block.kv_head) * element_bytes_;
      left = kv.page_size - (begin + i) % kv.page_size;
    }
    rows.keys[i] = static_cast<const std::byte*>(kv.keys) + offset;
    rows.values[i] = static_cast<const std::byte*>(kv.values) + offset;
  }
  return rows;
}

vernier_isa::KvRows Attention::key_rows(const Rows& rows, const Rows& next) const {
  return {.rows = rows.keys,
          .count = rows.count,
          .next_rows = next.keys,
          .next_begin = 0,
          .next_end = next.count,
          .dim = args_.kv.head_dim,
          .type = kv_type(args_.kv.dtype)};
}

vernier_isa::KvRows Attention::value_rows(const Rows& rows, const Rows& next) const {
  return {.rows = rows.values,
          .count = rows.count,
          .next_rows = next.values,
          .next_begin = 0,
          .next_end = next.count,
          .dim = args_.kv.head_dim,
          .type = kv_type(args_.kv.dtype)};
}

/// Scores of rows against `columns` of the keys, both in the scratch.
void Attention::score(Range rows, Range columns, vernier_isa::NextRows next, float* scratch) const {
  float* scores = scratch + 2 * tile_size();
  constexpr std::int64_t kRows = 32;
  for (std::int64_t first = rows.begin; first < rows.end; first += kRows) {
    const float* q[kRows];
    const std::int64_t part = std::min(kRows, rows.end - first);
    for (std::int64_t r = 0; r < part; ++r) q[r] = scratch + queries_offset() + (first + r) * stride_;
    kernels_.score_tile({.q = q,
                         .rows = part,
                         .keys = scratch + columns.begin,
                         .count = columns.end - columns.begin,
                         .dim = args_.kv.head_dim,
                         .scores = scores + (first - rows.begin) * kTileKeys,
                         .next = next});
  }
}

/// Makes weights of `count` columns of scores.
void Attention::weigh(Range rows, std::int64_t count, const Sums& sums, float* scratch) const {
  kernels_.softmax_tile({.scores = scratch + 2 * tile_size(),
                         .rows = rows.end - rows.begin,
                         .count = count,
                         .scale = args_.kv.dtype == DType::kF8E4M3 ? args_.scale * args_.kv.key_scale : args_.scale,
                         .soft_cap = args_.soft_cap,
                         .largest = sums.largest + rows.begin,
                         .total = sums.total + rows.begin,
                         .keep = scratch + keep_offset()});
}

vernier_isa::ValueTile Attention::value_tile(Range rows, Range columns, const Sums& sums, float* scratch) const {
  return {.weights = scratch + 2 * tile_size(),
          .keep = scratch + keep_offset(),
          .rows = rows.end - rows.begin,
          .values = scratch + tile_size() + columns.begin * stride_,
          .count = columns.end - columns.begin,
          .stride = stride_,
          .sums = sums.values + rows.begin * stride_};
}

/// A tile that all of a block's few rows see, while the next one is on its way.
void Attention::add_to_few(const Block& block, const Rows& tile, const Rows& next, const Sums& sums,
                           float* scratch) const {
  const Range all{0, rows(block)};
  // What comes next is asked for in three portions, so that memory is busy all the while: most keys now, most values
  // at the end, the others between.
  const std::byte* between[2 * kTileKeys];
  const std::int64_t late_keys = std::min(next.count, kTileKeys * 3 / 4);
  const std::int64_t early_values = std::min(next.count, kTileKeys / 4);
  std::copy(next.keys + late_keys, next.keys + next.count, between);
  std::copy(next.values, next.values + early_values, between + next.count - late_keys);

  vernier_isa::KvRows keys = key_rows(tile, next);
  keys.next_end = late_keys;
  kernels_.expand_keys(keys, scratch);
  score(all, {0, tile.count}, {between, next.count - late_keys + early_values, args_.kv.head_dim * element_bytes_},
        scratch);
  weigh(all, tile.count, sums, scratch);
  vernier_isa::KvRows values = value_rows(tile, next);
  values.next_begin = early_values;
  kernels_.add_value_rows(values, value_tile(all, {0, tile.count}, sums, scratch));
}

/// Passes columns of the expanded tile by the softmaxes of some rows.
void Attention::add_columns(Range rows, Range columns, const Sums& sums, float* scratch) const {
  score(rows, columns, {}, scratch);
  weigh(rows, columns.end - columns.begin, sums, scratch);
  kernels_.add_values(value_tile(rows, columns, sums, scratch));
}

/// A tile of which each token sees other keys.
void Attention::add_seen_columns(const Block& block, Range keys, const Sums& sums, float* scratch) const {
  for (std::int64_t t = 0; t < block.num_tokens; ++t) {
    const std::int64_t position = block.first_position() + t;
    const std::int64_t low = std::max(keys.begin, first_key(position));
    const std::int64_t high = std::min(keys.end, position + 1);
    if (low >= high) continue;
    add_columns({t * group_, (t + 1) * group_}, {low - keys.begin, high - keys.begin}, sums, scratch);
  }
}

/// The softmaxes of a block's rows over the positions of a split. A row without any has a total of 0.
void Attention::attend_split(BlockSplit what, BlockSplit next, Sums sums, float* scratch) const {
  const Block& block = *what.block;
  std::fill_n(sums.largest, rows(block), -kInfinity);
  std::fill_n(sums.total, rows(block), 0.0F);
  std::fill_n(sums.values, rows(block) * stride_, 0.0F);
  round_queries(block, scratch);
  const std::int64_t first = block.first_position();
  const Range keys = keys_of(what);
  Rows tile_rows = find_rows(block, keys);
  for (std::int64_t low = keys.begin; low < keys.end;) {
    const std::int64_t high = low + tile_rows.count;
    Rows next_rows;
    next_rows.count = 0;
    if (high < keys.end) {
      next_rows = find_rows(block, {high, keys.end});
    } else if (next.block != nullptr) {
      next_rows = find_rows(*next.block, keys_of(next));
    }
    const bool all_see_all = high <= first + 1 && low >= first_key(block.last_position());
    if (all_see_all && rows(block) <= kFewRows && stride_ == args_.kv.head_dim) {
      add_to_few(block, tile_rows, next_rows, sums, scratch);
    } else {
      kernels_.expand_keys(key_rows(tile_rows, next_rows), scratch);
      kernels_.expand_values(value_rows(tile_rows, next_rows), scratch + tile_size());
      if (all_see_all) {
        add_columns({0, rows(block)}, {0, high - low}, sums, scratch);
      } else {
        add_seen_columns(block, {low, high}, sums, scratch);
      }
    }
    tile_rows = next_rows;
    low = high;
  }
}

/// Sums over no keys.
void Attention::start(const Block& block, float* largest, float* total) const {
  for (std::int64_t r = 0; r < rows(block); ++r) {
    const bool sink = !args_.sinks.empty();
    largest[r] = sink ? args_.sinks[static_cast<std::size_t>(head_of(block, r))] : -kInfinity;
    total[r] = sink ? 1.0F : 0.0F;
    std::fill_n(result(block, r), args_.kv.head_dim, 0.0F);
  }
}

/// Adds the sums of the next split.
void Attention::merge(const Block& block, const Sums& split, float* largest, float* total) const {
  for (std::int64_t r = 0; r < rows(block); ++r) {
    if (split.total[r] == 0.0F) continue;
    const float top = std::max(largest[r], split.largest[r]);
    const float keep = std::exp(largest[r] - top);
    const float factor = std::exp(split.largest[r] - top);
    largest[r] = top;
    total[r] = total[r] * keep + split.total[r] * factor;
    kernels_.blend(split.values + r * stride_, factor, keep, args_.kv.head_dim, result(block, r));
  }
}

void Attention::finish(const Block& block, const float* total) const {
  const float scale = args_.kv.dtype == DType::kF8E4M3 ? args_.kv.value_scale : 1.0F;
  for (std::int64_t r = 0; r < rows(block); ++r) {
    kernels_.scale(result(block, r), scale / total[r], nullptr, args_.kv.head_dim, result(block, r));
  }
}

/// The blocks of all slices. Those with the most keys come first, so that threads that take one after another finish
/// together.
std::vector<Block> make_blocks(const AttentionArgs& args, std::int64_t max_tokens) {
  std::vector<Block> blocks;
  for (const SequenceSlice& slice : args.slices) {
    for (std::int64_t first = 0; first < slice.num_tokens; first += max_tokens) {
      const std::int64_t count = std::min<std::int64_t>(max_tokens, slice.num_tokens - first);
      for (std::int64_t head = 0; head < args.kv.num_kv_heads; ++head) blocks.push_back({&slice, head, first, count});
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.num_tokens * a.last_position() > b.num_tokens * b.last_position();
  });
  return blocks;
}

/// The splits of few blocks one after another, to be handled apart.
struct SplitList {
  std::vector<BlockSplit> splits;
  std::vector<std::int64_t> sums_at;  ///< [splits]: where the sums of each lie
  std::vector<std::size_t> first;     ///< [blocks]: the first split of each block in the list
  std::int64_t sums_size = 0;
};

/// Empty where there are blocks enough to go round, or nothing to split.
SplitList list_splits(const Attention& attention, std::span<const Block> blocks, int threads) {
  SplitList list;
  if (threads == 1 || static_cast<std::int64_t>(blocks.size()) >= std::int64_t{4} * threads) return list;
  for (const Block& block : blocks) {
    list.first.push_back(list.splits.size());
    for (std::int64_t split = attention.first_split(block); split < attention.end_split(block); ++split) {
      list.splits.push_back({&block, split});
      list.sums_at.push_back(list.sums_size);
      list.sums_size += attention.sums_size(block);
    }
  }
  if (list.splits.size() == blocks.size() || list.sums_size > kMaxPartialFloats) return {};
  return list;
}

}  // namespace

Status CpuBackend::attention(const AttentionArgs& args) {
  VN_TRY(check_args(args));
  const Attention attention(kernels_, args, precision_);
  const std::vector<Block> blocks = make_blocks(args, attention.max_tokens());
  const SplitList list = list_splits(attention, blocks, pool_.size());
  const std::int64_t part = attention.scratch_size();
  VN_ASSIGN(float* scratch, worker_floats_.get(static_cast<std::size_t>(part * pool_.size() + list.sums_size)));
  const auto sums_of = [&](std::size_t i) {
    return attention.sums_at(*list.splits[i].block, scratch + part * pool_.size() + list.sums_at[i]);
  };
  const auto attend_splits = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const BlockSplit next = i + 1 < static_cast<std::size_t>(end) ? list.splits[i + 1] : BlockSplit{};
      attention.attend_split(list.splits[i], next, sums_of(i), scratch + part * worker);
    }
  };
  const auto attend_blocks = [&](std::int64_t begin, std::int64_t end, int worker) {
    float* own = scratch + part * worker;
    for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end); ++b) {
      const Block& block = blocks[b];
      const std::int64_t first = attention.first_split(block);
      const BlockSplit next_block = b + 1 < static_cast<std::size_t>(end)
                                        ? BlockSplit{&blocks[b + 1], attention.first_split(blocks[b + 1])}
                                        : BlockSplit{};
      attention.merge_splits(block, own, [&](std::int64_t split) {
        if (!list.splits.empty()) return sums_of(list.first[b] + static_cast<std::size_t>(split - first));
        const Sums sums = attention.sums_at(block, attention.own_sums(own));
        const BlockSplit next = split + 1 < attention.end_split(block) ? BlockSplit{&block, split + 1} : next_block;
        attention.attend_split({&block, split}, next, sums, own);
        return sums;
      });
    }
  };
  if (!list.splits.empty()) pool_.parallel_for(static_cast<std::int64_t>(list.splits.size()), attend_splits);
  pool_.parallel_for(static_cast<std::int64_t>(blocks.size()), attend_blocks);
  return {};
}

}  // namespace vernier
