// Cuts a linear into launches.
#include "backend/cuda/linear/linear.h"

#include <algorithm>

#include "backend/check_args.h"
#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/embed.h"
#include "backend/cuda/linear/multiply.h"
#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_ring.h"
#include "backend/cuda/linear/placed_weight.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/split.h"
#include "backend/cuda/linear/wide.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

/// So many rows of x that grids and indices stay within 32 bits.
constexpr std::int64_t kMostTokens = 65535;

void add_output(const LinearOutput& output, const WeightRef& weight, LinearBatch& batch) {
  const int i = batch.count++;
  batch.matrix[i] = {weight, output.bias.empty() ? nullptr : output.bias.data()};
  batch.y[i] = output.y.data;
  batch.y_stride[i] = output.y.stride;
  batch.accumulate[i] = output.accumulate;
}

/// Whether multiplying outweighs reading the weights, and there are blocks enough for it.
bool is_wide(const CudaContext& context, const LinearBatch& batch) {
  const Packing packing = batch.matrix[0].weight.packing;
  if (!has_wide(packing) || wide_shared_bytes(packing) > context.max_shared_bytes) return false;
  constexpr int kManyColumns = 128;  // of bf16 terms
  constexpr int kRowsOfBlock = 128;
  const int columns = batch.tokens * batch.x.terms;
  int blocks = 0;
  for (int i = 0; i < batch.count; ++i) blocks += (batch.matrix[i].weight.rows + kRowsOfBlock - 1) / kRowsOfBlock;
  int fewest = 96;
  if (has_small_blocks(packing)) {
    blocks *= (columns + kSmallBlockColumns - 1) / kSmallBlockColumns;
    fewest = kSmallBlockColumns + 1;
  }
  return columns > kManyColumns || (columns >= fewest && 4 * blocks >= 3 * context.num_sms);
}

/// The same of the asynchronous kernels, which clusters of two blocks share: 256 rows and at least 32 columns.
bool is_async(const CudaContext& context, const LinearBatch& batch) {
  if (!has_async_linear(context, batch.matrix[0].weight.packing, batch.x.terms)) return false;
  constexpr int kFewColumns = 48;
  constexpr int kManyColumns = 128;
  constexpr int kRowsOfCluster = 256;
  const int columns = batch.tokens * batch.x.terms;
  int rows = 0;
  for (int i = 0; i < batch.count; ++i) rows += batch.matrix[i].weight.rows;
  const int clusters = rows / kRowsOfCluster * (columns / kBlockTokens);
  if (has_groups(batch.matrix[0].weight.packing)) {  // whose narrow kernel is slower, and takes 8 columns at a time
    constexpr int kFewGroupColumns = 24;
    if (columns >= kFewGroupColumns && 2 * (rows / kRowsOfCluster) >= context.num_sms) return true;
    if (columns >= kFewColumns && 5 * clusters >= context.num_sms) return true;
  }
  return columns >= kManyColumns || (columns >= kFewColumns && 3 * clusters >= context.num_sms);
}

/// Whether a split product, for which there is a plan, is faster than an asynchronous one: with more than two blocks of
/// tokens only where rows are too few for the device.
bool is_split_best(const LinearBatch& batch, const SplitPlan& plan) {
  return batch.tokens <= 2 * kBlockTokens || plan.split > 1;
}

/// Whether rounded rows have sums of groups behind their columns.
bool wants_sums(const WeightRef& weight) {
  return input_stride(weight.packing, weight.units) != std::int64_t{weight.units} * kUnitCols;
}

/// For products that know nothing of norms.
Status norm_first(CudaContext& context, LinearBatch& batch) {
  const RowNorm norm = batch.x.norm;
  if (norm.weight == nullptr) return {};
  const std::int64_t cols = batch.matrix[0].weight.cols;
  const MatrixView y = {norm.memory, batch.tokens, cols, norm.stride};
  VN_TRY(rms_norm(context, {.x = {const_cast<float*>(batch.x.data), batch.tokens, cols, batch.x.stride},
                            .weight = {norm.weight, static_cast<std::size_t>(cols)},
                            .eps = norm.eps,
                            .y = y}));
  batch.x.data = y.data;
  batch.x.stride = y.stride;
  batch.x.norm = {};
  return {};
}

/// How the rounded input of a product lies: rows, or as narrow_ring.h has it.
enum class RoundedAs : std::uint8_t { kRows, kChunks };
std::int64_t rounded_stride(const WeightRef& weight, RoundedAs as) {
  return as == RoundedAs::kChunks ? kRingStride : input_stride(weight.packing, weight.units);
}
std::int64_t rounded_size(const LinearBatch& batch, RoundedAs as) {
  const WeightRef& weight = batch.matrix[0].weight;
  const std::int64_t rows = std::int64_t{batch.tokens} * batch.x.terms;
  return as == RoundedAs::kChunks ? size_of_chunks(rows, weight.cols) : rows * rounded_stride(weight, as);
}
/// Of narrow products.
RoundedAs narrow_input(const CudaContext& context, const LinearBatch& batch) {
  return has_ring(context, batch) && !is_staged(batch) ? RoundedAs::kChunks : RoundedAs::kRows;
}

Status norm_and_round_as(CudaContext& context, const LinearBatch& batch, RoundedAs as, std::uint16_t* to) {
  const WeightRef& weight = batch.matrix[0].weight;
  const MatrixView x = {const_cast<float*>(batch.x.data), batch.tokens, weight.cols, batch.x.stride};
  if (as == RoundedAs::kChunks) return norm_and_round_chunks(context, x, batch.x.norm, batch.x.terms, to);
  return norm_and_round(context, x, batch.x.norm, {to, rounded_stride(weight, as), batch.x.terms});
}

/// Rounds the input for all blocks at once, normed first where it is to be: by one kernel, unless the packing wants
/// sums of the rounded columns too.
Status round_once(CudaContext& context, LinearBatch& batch, RoundedAs as = RoundedAs::kRows) {
  const WeightRef& weight = batch.matrix[0].weight;
  if (wants_sums(weight)) VN_TRY(norm_first(context, batch));
  const auto bytes = static_cast<std::size_t>(rounded_size(batch, as) * 2);
  VN_ASSIGN(void* const memory, context.scratch.get(ScratchSlot::kLinearInput, bytes));
  auto* const rounded = static_cast<std::uint16_t*>(memory);
  if (batch.x.norm.weight != nullptr) {
    VN_TRY(norm_and_round_as(context, batch, as, rounded));
    batch.x.norm = {};
  } else if (as == RoundedAs::kChunks) {
    VN_CUDA(round_chunks(batch.x, batch.tokens, weight.cols, rounded, context.stream));
  } else {
    VN_CUDA(round_input(batch.x, batch.tokens, weight.cols, {rounded, weight.packing}, context.stream));
  }
  batch.x.rounded = rounded;
  batch.x.rounded_stride = rounded_stride(weight, as);
  return {};
}

/// The same for narrow products, unless their blocks do it.
Status prepare_input(CudaContext& context, LinearBatch& batch) {
  if (wants_sums(batch.matrix[0].weight)) VN_TRY(norm_first(context, batch));
  const bool is_ready = batch.x.rounded != nullptr || (is_staged(batch) && batch.x.norm.weight == nullptr);
  return is_ready ? Status() : round_once(context, batch, narrow_input(context, batch));
}

LinearBatch make_batch(const CudaContext& context, const MatrixView& x, const InputNorm& norm) {
  LinearBatch batch;
  batch.x.terms = context.precision == Precision::kF32 ? 3 : 1;
  batch.x.data = x.data;
  batch.x.stride = x.stride;
  batch.tokens = static_cast<int>(x.rows);
  if (norm.present()) batch.x.norm = {norm.weight.data(), norm.eps, norm.y.data, norm.y.stride};
  return batch;
}

/// One token and very many long rows of 4-bit weights: faster in pairs of tiles that stream through registers.
bool is_best_in_registers(const LinearBatch& batch) {
  constexpr int kManyUnits = 128;
  const WeightRef& weight = batch.matrix[0].weight;
  return code_bits(weight.packing) == 4 && is_staged(batch) && has_many_tiles(batch) && weight.units >= kManyUnits;
}

/// The products of a dense MLP.
struct MlpBatches {
  LinearBatch gate_up;
  LinearBatch down;  ///< its input is what the first two make
  ActivationSpec activation;
};

/// fused_mlp() of few tokens.
Result<bool> narrow_mlp(CudaContext& context, MlpBatches& mlp) {
  constexpr int kMostColumns = 8;  // that the kernel of gate and up has
  LinearBatch& first = mlp.gate_up;
  LinearBatch& last = mlp.down;
  const WeightRef& down = last.matrix[0].weight;
  const Packing packing = first.matrix[0].weight.packing;
  if (first.tokens * first.x.terms > kMostColumns) return false;
  if (packing == Packing::kNone || down.packing == Packing::kNone) return false;
  const bool in_ring = has_ring(context, first);
  if (in_ring ? ring_kernels(packing).gated == nullptr : narrow_kernels(packing).gated == nullptr) return false;
  // The activation is rounded as the input of `down` would be; sums of its columns nobody makes.
  if (wants_sums(down)) return false;
  const RoundedAs as = narrow_input(context, last);
  if (as == RoundedAs::kChunks && !in_ring) return false;
  const std::size_t bytes = static_cast<std::size_t>(rounded_size(last, as)) * 2;
  VN_ASSIGN(void* const hidden, context.scratch.get(ScratchSlot::kMlpHidden, bytes));
  if (down.cols % kUnitCols != 0) VN_CUDA(cudaMemsetAsync(hidden, 0, bytes, context.stream));
  last.x.rounded = static_cast<std::uint16_t*>(hidden);
  last.x.rounded_stride = rounded_stride(down, as);
  const GatedOutput gated = {mlp.activation, static_cast<std::uint16_t*>(hidden), last.x.rounded_stride};
  VN_TRY(prepare_input(context, first));
  if (in_ring) {
    const std::int64_t rows = std::int64_t{last.tokens} * last.x.terms;
    const std::int64_t chunk_stride = as == RoundedAs::kChunks ? rows * kRingStride : kChunkCols;
    VN_CUDA(ring_kernels(packing).gated(first, {gated, chunk_stride}, context.stream));
  } else {
    VN_CUDA(narrow_kernels(packing).gated(first, gated, context.stream));
  }
  VN_TRY(multiply(context, last));
  return true;
}

Status linear_chunk(CudaContext& context, const LinearArgs& args, std::int64_t first, std::int64_t tokens) {
  InputNorm norm = args.norm;
  if (norm.present()) norm.y = norm.y.slice_rows(first, tokens);
  LinearBatch batch = make_batch(context, args.x.slice_rows(first, tokens), norm);
  for (const LinearOutput& whole : args.outputs) {
    LinearOutput output = whole;
    output.y = whole.y.slice_rows(first, tokens);
    VN_ASSIGN(const WeightRef weight, weight_ref(*output.weight));
    const bool differs = batch.count > 0 && batch.matrix[0].weight.packing != weight.packing;
    if (differs || batch.count == LinearBatch::kMost) {
      VN_TRY(multiply(context, batch));
      batch.count = 0;
    }
    add_output(output, weight, batch);
  }
  return batch.count > 0 ? multiply(context, batch) : Status();
}

}  // namespace

bool has_many_tiles(const LinearBatch& batch) {
  constexpr int kManyTiles = 400;
  int tiles = 0;
  for (int i = 0; i < batch.count; ++i) tiles += batch.matrix[i].weight.rows / kTileRows;
  return tiles >= kManyTiles;
}

Status multiply(CudaContext& context, LinearBatch batch) {
  const Packing packing = batch.matrix[0].weight.packing;
  if (packing == Packing::kNone) {
    VN_TRY(norm_first(context, batch));
    VN_CUDA(tile_linear(batch, context.stream));
    return {};
  }
  if (const SplitPlan plan = plan_split(context, batch); plan.blocks > 0 && is_split_best(batch, plan)) {
    return multiply_split(context, batch, plan);
  }
  if (is_async(context, batch)) {
    if (has_groups(packing)) VN_TRY(norm_first(context, batch));
    return multiply_async(context, batch);
  }
  if (is_wide(context, batch)) {
    VN_TRY(round_once(context, batch));
    VN_CUDA(wide_linear(packing, batch, context.stream));
    return {};
  }
  VN_TRY(prepare_input(context, batch));
  const bool in_ring = has_ring(context, batch) && !is_best_in_registers(batch);
  const auto kernel = in_ring ? ring_kernels(packing).linear : narrow_kernels(packing).linear;
  VN_CUDA(kernel(batch, context.stream));
  return {};
}

Status linear(CudaContext& context, const LinearArgs& args) {
  if (args.norm.present() && args.norm.weight.empty()) {
    VN_TRY(rms_norm(context, norm_of(args)));
    return linear(context, after_norm(args));
  }
  for (std::int64_t first = 0; first < args.x.rows; first += kMostTokens) {
    VN_TRY(linear_chunk(context, args, first, std::min(kMostTokens, args.x.rows - first)));
  }
  return {};
}

Result<bool> fused_mlp(CudaContext& context, const GatedMlpArgs& args) {
  if (args.norm.present() && args.norm.weight.empty()) return false;
  if (args.x.rows > kMostTokens) return false;
  MlpBatches mlp = {make_batch(context, args.x, args.norm), make_batch(context, args.gate.y, {}), args.activation};
  for (const LinearOutput* output : {&args.gate, &args.up}) {
    VN_ASSIGN(const WeightRef weight, weight_ref(*output->weight));
    add_output(*output, weight, mlp.gate_up);
  }
  VN_ASSIGN(const WeightRef down, weight_ref(*args.down.weight));
  add_output(args.down, down, mlp.down);
  const MatrixRef* const first = mlp.gate_up.matrix;
  if (first[0].weight.packing != first[1].weight.packing) return false;
  const SplitMlp split = {.gate_up = mlp.gate_up,
                          .gate_up_plan = plan_split(context, mlp.gate_up),
                          .activation = mlp.activation,
                          .down = mlp.down,
                          .down_plan = plan_split(context, mlp.down)};
  if (split.gate_up_plan.blocks > 0 && split.down_plan.blocks > 0) {
    VN_TRY(multiply_split_mlp(context, split));
    return true;
  }
  const bool is_grouped = has_groups(first[0].weight.packing) || has_groups(down.packing);
  if (!is_grouped && is_async(context, mlp.gate_up) && is_async(context, mlp.down)) {
    VN_TRY(multiply_async_gated(context, mlp.gate_up, mlp.activation, mlp.down));
    return true;
  }
  return narrow_mlp(context, mlp);
}

Status embed(CudaContext& context, const EmbedArgs& args) {
  if (args.tokens.empty()) return {};
  VN_ASSIGN(const std::int32_t* const tokens, context.tables.tokens(args.tokens));
  const EmbedTarget target = {.tokens = tokens,
                              .count = static_cast<std::int64_t>(args.tokens.size()),
                              .multiplier = args.multiplier,
                              .x = args.x.data,
                              .stride = args.x.stride};
  VN_ASSIGN(const WeightRef table, weight_ref(*args.table));
  VN_CUDA(embed_rows(table, target, context.stream));
  return {};
}

}  // namespace vernier::cuda
