#include "backend/cuda/linear/async.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/linear/async_groups_kernels.h"
#include "backend/cuda/linear/tiled_groups.h"

namespace vernier::cuda {
namespace {

constexpr int kRowsOfBlock = 128;

/// What a tile takes, by its columns in blocks of 32, as measured on an H200. Of few columns it is the weights that
/// take the time.
int cost_of_tile(Packing packing, int blocks) {
  constexpr int kExtraColumns = 24;
  if (has_groups(packing)) return blocks * kBlockTokens + kExtraColumns;
  return blocks > 4 ? 101 : blocks > 2 ? 59 : blocks > 1 ? 46 : 44;
}

/// Columns of a product's tiles, in blocks of 32 tokens: those with which the device is done first. Three blocks would
/// take as long as four.
int choose_blocks(const CudaContext& context, Packing packing, int tokens, int row_tiles) {
  const int most = has_wide_tiles(packing) ? kWideBlocks : most_tile_tokens(1) / kBlockTokens;
  int best = most;
  std::int64_t least = 0;
  for (int blocks = most; blocks > 0; blocks /= 2) {
    const int columns = blocks * kBlockTokens;
    const std::int64_t jobs = std::int64_t{(row_tiles + 1) / 2} * ((tokens + columns - 1) / columns);
    const std::int64_t clusters = context.num_sms / 2;
    const std::int64_t cost = (jobs + clusters - 1) / clusters * cost_of_tile(packing, blocks);
    if (blocks == most || cost < least) {
      best = blocks;
      least = cost;
    }
  }
  return best;
}

cudaError_t launch_groups(Packing packing, const AsyncSource& source, const AsyncLaunch& how) {
  using enum Packing;
  switch (packing) {
    case kGroups4: return launch_async_groups<kGroups4>(source, how);
    case kGroups4Minimum: return launch_async_groups<kGroups4Minimum>(source, how);
    case kGroups4Super: return launch_async_groups<kGroups4Super>(source, how);
    case kGroups4Table: return launch_async_groups<kGroups4Table>(source, how);
    case kGroups4TableSuper: return launch_async_groups<kGroups4TableSuper>(source, how);
    case kGroups5: return launch_async_groups<kGroups5>(source, how);
    case kGroups5Minimum: return launch_async_groups<kGroups5Minimum>(source, how);
    case kGroups5Super: return launch_async_groups<kGroups5Super>(source, how);
    case kGroups8: return launch_async_groups<kGroups8>(source, how);
    case kGroups2Super: return launch_async_groups<kGroups2Super>(source, how);
    case kGroups3Super: return launch_async_groups<kGroups3Super>(source, how);
    default: return launch_async_groups<kGroups6Super>(source, how);
  }
}

cudaError_t launch(const CudaContext& context, Packing packing, const AsyncSource& source, std::int64_t most_jobs) {
  const std::int64_t clusters = std::min<std::int64_t>(context.num_sms / 2, most_jobs);
  const AsyncLaunch how = {static_cast<unsigned>(2 * clusters), context.stream};
  if (has_groups(packing)) return launch_groups(packing, source, how);
  switch (packing) {
    case Packing::kE2M1ByE4M3: return launch_async<Packing::kE2M1ByE4M3>(source, how);
    case Packing::kE2M1ByE8M0: return launch_async<Packing::kE2M1ByE8M0>(source, how);
    case Packing::kE4M3: return launch_async<Packing::kE4M3>(source, how);
    case Packing::kE4M3ByGrid: return launch_async<Packing::kE4M3ByGrid>(source, how);
    default: return launch_async<Packing::kBF16>(source, how);
  }
}

int row_tiles(const WeightRef& weight, int rows_of_block) { return (weight.rows + rows_of_block - 1) / rows_of_block; }

/// What a linear's launch starts from: no memory for its input, and no row tiles.
AsyncSource linear_source(const LinearBatch& batch) {
  AsyncSource source;
  source.linear = batch;
  const WeightRef& weight = batch.matrix[0].weight;
  source.x = {.data = nullptr, .units = group_tiles(group_shape(weight.packing), weight.units), .terms = batch.x.terms};
  return source;
}

Result<std::byte*> tiled_memory(CudaContext& context, ScratchSlot slot, const TiledInput& x, int tokens) {
  const std::int64_t blocks = std::int64_t{(tokens + kBlockTokens - 1) / kBlockTokens} * x.terms;
  VN_ASSIGN(void* const memory,
            context.scratch.get(slot, static_cast<std::size_t>(blocks * x.units) * std::size_t{kTileBytes}));
  return static_cast<std::byte*>(memory);
}

/// Norms, rounds and tiles a linear's input. (Of grouped weights it is normed.)
Status prepare_input(CudaContext& context, AsyncSource& source) {
  const LinearBatch& batch = source.linear;
  const InputView& x = batch.x;
  const std::int64_t cols = batch.matrix[0].weight.cols;
  VN_ASSIGN(source.x.data, tiled_memory(context, ScratchSlot::kLinearInput, source.x, batch.tokens));
  if (x.norm.weight != nullptr) {
    const MatrixView rows = {const_cast<float*>(x.data), batch.tokens, cols, x.stride};
    return norm_and_tile(context, rows, x.norm, source.x);
  }
  if (has_groups(batch.matrix[0].weight.packing)) {
    VN_CUDA(tile_group_input(x, batch.tokens, batch.matrix[0].weight, source.x, context.stream));
  } else {
    VN_CUDA(tile_input(x, batch.tokens, cols, source.x, context.stream));
  }
  return {};
}

/// With the tiles of tokens that do best.
Status launch_linear(const CudaContext& context, AsyncSource& source) {
  const int terms = source.x.terms;
  const int tokens = source.linear.tokens;
  source.blocks =
      terms == 1 ? choose_blocks(context, source.linear.matrix[0].weight.packing, tokens, source.row_tiles) : terms;
  const int tokens_a_tile = source.blocks * kBlockTokens / terms;
  source.token_tiles = (tokens + tokens_a_tile - 1) / tokens_a_tile;
  const std::int64_t jobs = std::int64_t{(source.row_tiles + 1) / 2} * source.token_tiles;
  VN_CUDA(launch(context, source.linear.matrix[0].weight.packing, source, jobs));
  return {};
}

AsyncSource expert_source(const AsyncExperts& experts, int rows_of_block) {
  AsyncSource source;
  source.experts = experts.batch;
  source.tiles = experts.tiles;
  source.x = experts.x;
  source.row_tiles = experts.batch.num_matrices * ((experts.batch.rows + rows_of_block - 1) / rows_of_block);
  return source;
}

bool runs_async(const CudaContext& context) {
  constexpr bool kIsBuilt = std::string_view(VERNIER_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
  return kIsBuilt && context.capability == 90 && context.max_shared_bytes >= kAsyncSharedBytes;
}

}  // namespace

bool has_async(const CudaContext& context, Packing packing) {
  return runs_async(context) && packing != Packing::kNone && packing <= Packing::kBF16;
}

bool has_async_linear(const CudaContext& context, Packing packing, int terms) {
  return has_async(context, packing) || (runs_async(context) && has_groups(packing) && terms == 1);
}

Status multiply_async(CudaContext& context, const LinearBatch& batch) {
  AsyncSource source = linear_source(batch);
  VN_TRY(prepare_input(context, source));
  for (int i = 0; i < batch.count; ++i) source.row_tiles += row_tiles(batch.matrix[i].weight, kRowsOfBlock);
  return launch_linear(context, source);
}

Status multiply_async_gated(CudaContext& context, const LinearBatch& gate_up, const ActivationSpec& spec,
                            const LinearBatch& down) {
  AsyncSource source = linear_source(gate_up);
  AsyncSource last = linear_source(down);
  VN_TRY(prepare_input(context, source));
  VN_ASSIGN(last.x.data, tiled_memory(context, ScratchSlot::kMlpHidden, last.x, down.tokens));
  source.spec = spec;
  source.hidden = last.x;
  source.row_tiles = row_tiles(gate_up.matrix[0].weight, kRowsOfBlock / 2);
  VN_TRY(launch_linear(context, source));
  last.row_tiles = row_tiles(down.matrix[0].weight, kRowsOfBlock);
  return launch_linear(context, last);
}

cudaError_t async_experts(const CudaContext& context, Packing packing, const AsyncExperts& experts) {
  return launch(context, packing, expert_source(experts, kRowsOfBlock), context.num_sms);
}

cudaError_t async_gate_up(const CudaContext& context, Packing packing, const AsyncExperts& experts,
                          const ActivationSpec& spec, const TiledInput& hidden) {
  AsyncSource source = expert_source(experts, kRowsOfBlock / 2);
  source.spec = spec;
  source.hidden = hidden;
  return launch(context, packing, source, context.num_sms);
}

}  // namespace vernier::cuda
