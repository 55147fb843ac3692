#include "backend/cuda/linear/split.h"

#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/linear/split_kernels.h"

namespace vernier::cuda {
namespace {

int tiles_of(std::int64_t count, int size) { return static_cast<int>((count + size - 1) / size); }

int row_tiles_of(const LinearBatch& batch) {
  int tiles = 0;
  for (int i = 0; i < batch.count; ++i) tiles += tiles_of(batch.matrix[i].weight.rows, kSplitRows);
  return tiles;
}

template <int kBlocks>
cudaError_t launch(Packing packing, const SplitSource& source, cudaStream_t stream) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return launch_split<Packing::kE2M1ByE4M3, kBlocks>(source, stream);
    case Packing::kE2M1ByE8M0: return launch_split<Packing::kE2M1ByE8M0, kBlocks>(source, stream);
    case Packing::kE4M3: return launch_split<Packing::kE4M3, kBlocks>(source, stream);
    case Packing::kE4M3ByGrid: return launch_split<Packing::kE4M3ByGrid, 1>(source, stream);
    default: return launch_split<Packing::kBF16, kBlocks>(source, stream);
  }
}

/// The input as tiles, normed first where it is to be.
Status tile_normed(CudaContext& context, const LinearBatch& batch, const TiledInput& to) {
  const std::int64_t cols = batch.matrix[0].weight.cols;
  const RowNorm& norm = batch.x.norm;
  if (norm.weight == nullptr) {
    VN_CUDA(tile_input(batch.x, batch.tokens, cols, to, context.stream));
    return {};
  }
  const MatrixView x = {const_cast<float*>(batch.x.data), batch.tokens, cols, batch.x.stride};
  return norm_and_tile(context, x, norm, to);
}

}  // namespace

SplitPlan plan_split(const CudaContext& context, const LinearBatch& batch) {
  constexpr int kFewTokens = 9;
  constexpr int kManyTokens = 256;
  const Packing packing = batch.matrix[0].weight.packing;
  if (!has_async(context, packing) || batch.x.terms != 1 || batch.tokens < kFewTokens || batch.tokens > kManyTokens) {
    return {};
  }
  const int units = batch.matrix[0].weight.units;
  const int row_tiles = row_tiles_of(batch);
  SplitPlan best;
  for (int blocks = 1; blocks <= most_split_blocks(packing); ++blocks) {
    for (int split = 1; split <= kSegments; split *= 2) {
      const int jobs = row_tiles * tiles_of(batch.tokens, blocks * kBlockTokens) * split;
      if (split > 1 && jobs > context.num_sms) break;  // they wait for each other
      const double waves = tiles_of(jobs, context.num_sms);
      const double a_unit = blocks == 1 ? 4.5 : 6.5;
      const double ends = split > 1 ? 60 : 40;
      const double cost = waves * (ends + a_unit * tiles_of(units, split));
      if (best.blocks == 0 || cost < best.cost) best = {blocks, split, cost};
    }
  }
  return best;
}

Status multiply_split(CudaContext& context, const LinearBatch& batch, const SplitPlan& plan) {
  SplitSource source;
  source.linear = batch;
  source.split = plan.split;
  source.row_tiles = row_tiles_of(batch);
  source.token_tiles = tiles_of(batch.tokens, plan.blocks * kBlockTokens);
  source.x_blocks = tiles_of(batch.tokens, kBlockTokens);
  source.x.units = batch.matrix[0].weight.units;
  const std::size_t input_bytes =
      static_cast<std::size_t>(source.x_blocks) * static_cast<std::size_t>(source.x.units) * std::size_t{kTileBytes};
  const std::int64_t partials = plan.split == 1 ? 0
                                                : std::int64_t{source.row_tiles} * source.token_tiles * kSegments *
                                                      kSplitRows * plan.blocks * kBlockTokens;
  VN_ASSIGN(void* const memory, context.scratch.get(ScratchSlot::kLinearInput,
                                                    input_bytes + static_cast<std::size_t>(partials) * sizeof(float)));
  source.x.data = static_cast<std::byte*>(memory);
  if (partials > 0) {
    VN_ASSIGN(source.arrivals, context.scratch.counters(std::int64_t{source.row_tiles} * source.token_tiles));
  }
  if (partials > 0) source.partials = reinterpret_cast<float*>(source.x.data + input_bytes);
  VN_TRY(tile_normed(context, batch, source.x));
  const Packing packing = batch.matrix[0].weight.packing;
  VN_CUDA(plan.blocks == 1 ? launch<1>(packing, source, context.stream) : launch<2>(packing, source, context.stream));
  return {};
}

}  // namespace vernier::cuda
