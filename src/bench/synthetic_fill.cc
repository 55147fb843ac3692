// The bytes of a synthetic model: each tensor is filled from a tile of its kind, in pieces that threads share.
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "base/thread_pool.h"
#include "bench/random.h"
#include "bench/random_blocks.h"
#include "bench/synthetic_model.h"
#include "format/scalar_codecs.h"

namespace vernier::bench {
namespace {

using TileKey = std::tuple<FormatId, WeightLayout, std::int64_t>;

constexpr std::uint64_t kPieceBytes = 8ULL << 20U;

TileKey key_of(const PlannedTensor& tensor) { return {tensor.format, tensor.layout, tensor.cols}; }

bool needs_tile(const PlannedTensor& tensor) {
  return tensor.content != Content::kConstant && tensor.content != Content::kNoise;
}

/// A stretch of a tensor that one thread writes.
struct Piece {
  const PlannedTensor* tensor;
  const BlockTile* tile;
  std::byte* to;
  std::uint64_t size;
  std::uint64_t seed;
};

void fill_floats(const Piece& piece) {
  Random random(piece.seed);
  for (std::uint64_t at = 0; at < piece.size; at += sizeof(float)) {
    float value = piece.tensor->value;
    if (piece.tensor->content == Content::kNoise) value *= random.uniform();
    if (piece.tensor->content == Content::kOuter) value = piece.tile->outer;
    std::memcpy(piece.to + at, &value, sizeof(value));
  }
}

void round_to_bf16(std::byte* bytes, std::uint64_t size) {
  for (std::uint64_t at = 0; at < size; at += sizeof(float)) {
    float value = 0.0F;
    std::memcpy(&value, bytes + at, sizeof(value));
    value = BF16Codec::decode(BF16Codec::encode(value));
    std::memcpy(bytes + at, &value, sizeof(value));
  }
}

void fill_piece(const Piece& piece) {
  switch (piece.tensor->content) {
    case Content::kCodes:
      fill_from_tile(piece.tile->codes, piece.tile->code_unit, piece.seed, piece.to, piece.size);
      if (piece.tensor->holds_bf16) round_to_bf16(piece.to, piece.size);
      break;
    case Content::kScales:
      fill_from_tile(piece.tile->scales, piece.tile->scale_unit, piece.seed, piece.to, piece.size);
      break;
    default: fill_floats(piece);
  }
}

}  // namespace

void SyntheticModel::fill(int threads) {
  if (is_filled_) return;
  std::map<TileKey, BlockTile> tiles;
  for (const PlannedTensor& tensor : tensors_) {
    if (!needs_tile(tensor) || tiles.contains(key_of(tensor))) continue;
    tiles.emplace(key_of(tensor), make_tile(tensor.format, tensor.layout, tensor.cols, seed_ + tiles.size()));
  }
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const PlannedTensor& tensor = tensors_[i];
    const BlockTile* tile = needs_tile(tensor) ? &tiles.at(key_of(tensor)) : nullptr;
    // A piece is a whole number of the tile's units, or a block would begin in the middle of another's place.
    const std::uint64_t unit = tile == nullptr                      ? sizeof(float)
                               : tensor.content == Content::kCodes  ? tile->code_unit
                               : tensor.content == Content::kScales ? tile->scale_unit
                                                                    : sizeof(float);
    const std::uint64_t step = kPieceBytes / unit * unit;
    for (std::uint64_t at = 0; at < tensor.size; at += step) {
      pieces.push_back({&tensor, tile, bytes_.data() + offsets_[i] + at, std::min(step, tensor.size - at),
                        mix(seed_ ^ mix(i)) + at});
    }
  }
  ThreadPool pool(threads);
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) fill_piece(pieces[static_cast<std::size_t>(i)]);
  });
}

}  // namespace vernier::bench
