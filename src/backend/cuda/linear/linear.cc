// Cuts a linear into launches.
#include "backend/cuda/linear/linear.h"

#include <algorithm>

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/embed.h"
#include "backend/cuda/linear/multiply.h"
#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/placed_weight.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/wide.h"

namespace vernier::cuda {
namespace {

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
  if (!has_async(context, batch.matrix[0].weight.packing)) return false;
  constexpr int kFewColumns = 48;
  constexpr int kManyColumns = 128;
  constexpr int kRowsOfCluster = 256;
  const int columns = batch.tokens * batch.x.terms;
  int rows = 0;
  for (int i = 0; i < batch.count; ++i) rows += batch.matrix[i].weight.rows;
  const int clusters = rows / kRowsOfCluster * (columns / kBlockTokens);
  return columns >= kManyColumns || (columns >= kFewColumns && 3 * clusters >= context.num_sms);
}

Status round_once(CudaContext& context, LinearBatch& batch) {
  const WeightRef& weight = batch.matrix[0].weight;
  const std::int64_t stride = input_stride(weight.packing, weight.units);
  const std::int64_t rows = std::int64_t{batch.tokens} * batch.x.terms;
  VN_ASSIGN(void* const memory,
            context.scratch.get(ScratchSlot::kLinearInput, static_cast<std::size_t>(rows * stride * 2)));
  auto* const rounded = static_cast<std::uint16_t*>(memory);
  VN_CUDA(round_input(batch.x, batch.tokens, weight.cols, {rounded, weight.packing}, context.stream));
  batch.x.rounded = rounded;
  batch.x.rounded_stride = stride;
  return {};
}

Status linear_chunk(CudaContext& context, const LinearArgs& args, std::int64_t first, std::int64_t tokens) {
  LinearBatch batch;
  batch.x.terms = context.precision == Precision::kF32 ? 3 : 1;
  batch.x.data = args.x.row(first);
  batch.x.stride = args.x.stride;
  batch.tokens = static_cast<int>(tokens);
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

Status multiply(CudaContext& context, LinearBatch batch) {
  const Packing packing = batch.matrix[0].weight.packing;
  if (packing == Packing::kNone) {
    VN_CUDA(tile_linear(batch, context.stream));
    return {};
  }
  if (is_async(context, batch)) return multiply_async(context, batch);
  const bool wide = is_wide(context, batch);
  if (wide || !is_staged(batch)) VN_TRY(round_once(context, batch));
  if (wide) {
    VN_CUDA(wide_linear(packing, batch, context.stream));
    return {};
  }
  VN_CUDA(narrow_kernels(packing).linear(batch, context.stream));
  return {};
}

Status linear(CudaContext& context, const LinearArgs& args) {
  // So many rows of x that grids and indices stay within 32 bits.
  constexpr std::int64_t kMostTokens = 65535;
  for (std::int64_t first = 0; first < args.x.rows; first += kMostTokens) {
    VN_TRY(linear_chunk(context, args, first, std::min(kMostTokens, args.x.rows - first)));
  }
  return {};
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
