#include "backend/cuda/linear/split.h"

#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/linear/split_kernels.h"
#include "backend/cuda/linear/tile_gated.h"

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

/// From there on the asynchronous kernels do as well, or better.
int most_tokens(Packing packing) { return packing == Packing::kBF16 || packing == Packing::kE4M3ByGrid ? 64 : 128; }

/// As measured on an H200, microseconds: what every wave takes, its units, and the partial sums' way through memory.
double cost_of(const CudaContext& context, const SplitPlan& plan, int tiles, int units) {
  constexpr double kEnds = 5.0;
  constexpr double kMegabyte = 0.5;
  const double a_unit = plan.blocks == 1 ? 0.37 : 0.48;
  const int sets = plan.split == 1 ? 0 : kSegments - kSegments / plan.split + 1;
  const double sums = 1e-6 * sizeof(float) * kSplitRows * kBlockTokens * plan.blocks * sets * tiles;
  return tiles_of(tiles * plan.split, context.num_sms) * (kEnds + a_unit * tiles_of(units, plan.split)) +
         kMegabyte * sums;
}

SplitSource split_source(const LinearBatch& batch, const SplitPlan& plan) {
  SplitSource source;
  source.linear = batch;
  source.split = plan.split;
  source.row_tiles = row_tiles_of(batch);
  source.token_tiles = tiles_of(batch.tokens, plan.blocks * kBlockTokens);
  source.x_blocks = tiles_of(batch.tokens, kBlockTokens);
  source.x.units = batch.matrix[0].weight.units;
  return source;
}

std::size_t input_bytes(const SplitSource& source) {
  return static_cast<std::size_t>(source.x_blocks) * static_cast<std::size_t>(source.x.units) * std::size_t{kTileBytes};
}

/// For partial sums, and for the input where it shall be found.
Status find_memory(CudaContext& context, const SplitPlan& plan, bool with_input, SplitSource& source) {
  const std::size_t input = with_input ? input_bytes(source) : 0;
  const std::int64_t tiles = std::int64_t{source.row_tiles} * source.token_tiles;
  const std::int64_t sums = plan.split == 1 ? 0 : tiles * kSegments * kSplitRows * plan.blocks * kBlockTokens;
  VN_ASSIGN(void* const memory,
            context.scratch.get(ScratchSlot::kLinearInput, input + static_cast<std::size_t>(sums) * sizeof(float)));
  source.x.data = static_cast<std::byte*>(memory);
  if (sums == 0) return {};
  source.partials = reinterpret_cast<float*>(source.x.data + input);
  VN_ASSIGN(source.arrivals, context.scratch.counters(tiles));
  return {};
}

Status launch_planned(const CudaContext& context, const SplitPlan& plan, const SplitSource& source) {
  const Packing packing = source.linear.matrix[0].weight.packing;
  VN_CUDA(plan.blocks == 1 ? launch<1>(packing, source, context.stream) : launch<2>(packing, source, context.stream));
  return {};
}

}  // namespace

SplitPlan plan_split(const CudaContext& context, const LinearBatch& batch) {
  const Packing packing = batch.matrix[0].weight.packing;
  if (!has_async(context, packing) || batch.x.terms != 1) return {};
  constexpr int kFewTokens = 17;  // fewer: narrow products
  if (batch.tokens < kFewTokens || batch.tokens > most_tokens(packing)) return {};
  const int units = batch.matrix[0].weight.units;
  const int row_tiles = row_tiles_of(batch);
  SplitPlan best;
  for (int blocks = 1; blocks <= most_split_blocks(packing); ++blocks) {
    for (int split = 1; split <= kSegments; split *= 2) {
      const int tiles = row_tiles * tiles_of(batch.tokens, blocks * kBlockTokens);
      if (split > 1 && tiles * split > context.num_sms) break;  // they wait for each other
      const double cost = cost_of(context, {blocks, split}, tiles, units);
      if (best.blocks == 0 || cost < best.cost) best = {blocks, split, cost};
    }
  }
  return best;
}

Status multiply_split(CudaContext& context, const LinearBatch& batch, const SplitPlan& plan) {
  SplitSource source = split_source(batch, plan);
  VN_TRY(find_memory(context, plan, true, source));
  VN_TRY(tile_normed(context, batch, source.x));
  return launch_planned(context, plan, source);
}

Status multiply_split_mlp(CudaContext& context, const SplitMlp& mlp) {
  const LinearBatch& first = mlp.gate_up;
  VN_TRY(multiply_split(context, first, mlp.gate_up_plan));
  SplitSource source = split_source(mlp.down, mlp.down_plan);
  VN_TRY(find_memory(context, mlp.down_plan, false, source));
  VN_ASSIGN(void* const hidden, context.scratch.get(ScratchSlot::kMlpHidden, input_bytes(source)));
  source.x.data = static_cast<std::byte*>(hidden);
  const auto rows_of = [&first](int i) {
    return MatrixView{first.y[i], first.tokens, first.matrix[i].weight.rows, first.y_stride[i]};
  };
  VN_CUDA(tile_gated(rows_of(0), rows_of(1), mlp.activation, source.x, context.stream));
  return launch_planned(context, mlp.down_plan, source);
}

}  // namespace vernier::cuda
