// The experts of a step: grouped on the device, then three products of every used expert.
#include <algorithm>

#include "backend/cuda/experts/expert_bank.h"
#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/few_kernels.h"
#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/tiled_groups.h"
#include "backend/cuda/linear/wide.h"

namespace vernier::cuda {
namespace {

/// Tokens taken at a time: bounds the working memory.
constexpr std::int64_t kTokensPerChunk = 4096;

/// One expert_mlp of at most kTokensPerChunk tokens on its way.
struct ExpertStep {
  CudaContext& context;
  const ExpertMlpArgs& args;
  const BankView& bank;
  std::int64_t uses;
  std::int64_t dim;
  std::int64_t ff;
  float* results = nullptr;  ///< [uses, dim]

  template <class T>
  Result<T*> scratch(ScratchSlot slot, std::int64_t count) const {
    VN_ASSIGN(void* const memory, context.scratch.get(slot, static_cast<std::size_t>(count) * sizeof(T)));
    return static_cast<T*>(memory);
  }

  /// What becomes of the results.
  [[nodiscard]] CombineExperts combination() const {
    return {.results = results,
            .ids = args.ids,
            .weights = args.weights,
            .y = args.y.data,
            .y_stride = args.y.stride,
            .tokens = args.x.rows,
            .cols = static_cast<std::int32_t>(dim),
            .top_k = args.top_k,
            .experts = static_cast<std::int32_t>(bank.experts)};
  }
  /// Whether the launch of down does that too.
  [[nodiscard]] bool combines_itself() const { return args.x.rows == 1 && is_few(); }

  /// What all products of the step share.
  Result<ExpertBatch> make_batch() const {
    ExpertBatch batch;
    batch.top_k = args.top_k;
    batch.experts = static_cast<int>(bank.experts);
    batch.most_tokens = static_cast<int>(args.x.rows);
    batch.x = {.data = args.x.data, .stride = args.x.stride};
    batch.x.terms = terms();
    if (args.x.rows == 1) {  // its experts differ: nothing to group
      batch.groups.expert = args.ids;
      batch.most_groups = args.top_k;
      return batch;
    }
    const GroupedUses sizes = {uses, bank.experts, is_few() ? few_columns(uses, bank.experts) : uses};
    VN_ASSIGN(std::int32_t* const table, scratch<std::int32_t>(ScratchSlot::kExpertGroups, group_table_size(sizes)));
    VN_ASSIGN(const RoundedTokens tokens, make_rounded(batch));
    VN_CUDA(group_uses(args.ids, sizes, table, tokens, context.stream));
    batch.groups = group_table(table, sizes);
    batch.most_groups = static_cast<int>(sizes.most_groups());
    return batch;
  }

  void set_gate_up(ExpertBatch& batch) const {
    batch.rows = static_cast<int>(ff);
    batch.cols = static_cast<int>(dim);
    batch.num_matrices = 2;
    batch.matrix[0] = bank.matrix(0);
    batch.matrix[1] = bank.matrix(1);
    batch.y_stride = ff;
  }
  void set_down(ExpertBatch& batch) const {
    batch.rows = static_cast<int>(dim);
    batch.cols = static_cast<int>(ff);
    batch.num_matrices = 1;
    batch.matrix[0] = bank.matrix(2);
    batch.x_by_place = true;
    batch.y[0] = results;
    batch.y_stride = dim;
    batch.y_by_use = true;
  }

  /// The activation on gate and up [uses, ff] each, one behind the other.
  [[nodiscard]] ActivateExperts activation_of(const ExpertBatch& batch, float* gate) const {
    return {.spec = args.activation,
            .groups = batch.groups,
            .places = uses,
            .cols = static_cast<std::int32_t>(ff),
            .experts = batch.experts,
            .gate = gate,
            .up = gate + uses * ff};
  }

  /// Any weights: gate and up, the activation, down.
  Status multiply_any(ExpertBatch batch) const {
    VN_ASSIGN(float* const gate, scratch<float>(ScratchSlot::kExpertHidden, 2 * uses * ff));
    set_gate_up(batch);
    batch.y[0] = gate;
    batch.y[1] = gate + uses * ff;
    VN_CUDA(tile_experts(batch, context.stream));
    VN_CUDA(activate_experts(activation_of(batch, gate), context.stream));
    batch.x.data = gate;
    batch.x.stride = ff;
    set_down(batch);
    VN_CUDA(tile_experts(batch, context.stream));
    return {};
  }

  [[nodiscard]] static std::int64_t padded(std::int64_t cols) { return (cols + kUnitCols - 1) / kUnitCols * kUnitCols; }

  /// Rows of fp32 as bf16 terms for weights of a packing; in `x` too.
  Status round_rows(ScratchSlot slot, Packing packing, std::int64_t rows, std::int64_t cols, InputView& x) const {
    const std::int64_t stride = input_stride(packing, padded(cols) / kUnitCols);
    VN_ASSIGN(std::uint16_t* const rounded, scratch<std::uint16_t>(slot, rows * x.terms * stride));
    VN_CUDA(round_input(x, rows, cols, {rounded, packing}, context.stream));
    x.rounded = rounded;
    x.rounded_stride = stride;
    return {};
  }

  /// The step's tokens as bf16 terms, where more than one block would round them; in `batch` too.
  Result<RoundedTokens> make_rounded(ExpertBatch& batch) const {
    RoundedTokens tokens;
    if (!is_packed() || is_async() || is_async_groups()) return tokens;
    if (group_shape(bank.gate_up).has_minimum) {  // which also wants sums
      VN_TRY(round_rows(ScratchSlot::kExpertInput, bank.gate_up, args.x.rows, dim, batch.x));
      return tokens;
    }
    tokens = {.x = batch.x, .rows = args.x.rows, .cols = static_cast<std::int32_t>(dim), .stride = padded(dim)};
    VN_ASSIGN(tokens.to, scratch<std::uint16_t>(ScratchSlot::kExpertInput, args.x.rows * terms() * padded(dim)));
    batch.x.rounded = tokens.to;
    batch.x.rounded_stride = padded(dim);
    return tokens;
  }

  [[nodiscard]] bool is_packed() const { return bank.gate_up != Packing::kNone && bank.down != Packing::kNone; }
  [[nodiscard]] int terms() const { return context.precision == Precision::kF32 ? 3 : 1; }

  /// Whether used experts have so many tokens on average that multiplying outweighs reading their weights.
  [[nodiscard]] bool is_wide() const {
    constexpr std::int64_t kManyColumns = 48;
    const auto fits = [&](Packing packing) {
      return has_wide(packing) && wide_shared_bytes(packing) <= context.max_shared_bytes;
    };
    return fits(bank.gate_up) && fits(bank.down) && uses * terms() >= kManyColumns * bank.experts;
  }

  /// Whether there are kernels for experts with few tokens that take the work of all together, and for so few.
  [[nodiscard]] bool has_few() const {
    return terms() == 1 && few_kernels(bank.gate_up) != nullptr && few_kernels(bank.down) != nullptr &&
           few_shared_bytes(padded(dim)) <= context.max_shared_bytes;
  }
  [[nodiscard]] bool is_few() const { return has_few() && !is_async() && !is_wide(); }

  Status multiply(Packing packing, const ExpertBatch& batch) const {
    if (is_wide()) {
      VN_CUDA(wide_experts(packing, batch, context.stream));
    } else {
      VN_CUDA(narrow_kernels(packing).experts(batch, context.stream));
    }
    return {};
  }

  /// Packed weights in steps, as multiply_any().
  Status multiply_in_steps(ExpertBatch batch) const {
    VN_ASSIGN(float* const gate, scratch<float>(ScratchSlot::kExpertHidden, 2 * uses * ff));
    set_gate_up(batch);
    batch.y[0] = gate;
    batch.y[1] = gate + uses * ff;
    VN_TRY(multiply(bank.gate_up, batch));
    VN_CUDA(activate_experts(activation_of(batch, gate), context.stream));
    batch.x.data = gate;
    batch.x.stride = ff;
    VN_TRY(round_rows(ScratchSlot::kExpertSpare, bank.down, uses, ff, batch.x));
    set_down(batch);
    VN_TRY(multiply(bank.down, batch));
    return {};
  }

  /// Whether the device has kernels for so many tokens an expert, as those of is_wide() but better.
  [[nodiscard]] bool is_async() const {
    const std::int64_t columns = has_few() ? 24 : 16;
    return has_async(context, bank.gate_up) && has_async(context, bank.down) && args.x.rows > 1 &&
           uses * terms() >= columns * bank.experts;
  }

  /// Gathers the experts' tokens, then gate, up and the activation in one launch, and down in another.
  Status multiply_asynchronously(const ExpertBatch& batch) const {
    const int terms = batch.x.terms;
    const auto table_size = token_tiles_size(uses, batch.most_groups, terms);
    VN_ASSIGN(std::int32_t* const table, scratch<std::int32_t>(ScratchSlot::kExpertSpare, table_size));
    VN_CUDA(cut_token_tiles(batch.groups, terms, table, context.stream));
    AsyncExperts experts = {.batch = batch, .tiles = token_tiles(table), .x = {}};
    const std::int64_t blocks = most_token_blocks(uses, batch.most_groups) * terms;
    const auto tiled = [&](std::int64_t cols) {
      return TiledInput{nullptr, static_cast<std::int32_t>(padded(cols) / kUnitCols), terms};
    };
    experts.x = tiled(dim);
    TiledInput hidden = tiled(ff);
    VN_ASSIGN(experts.x.data, scratch<std::byte>(ScratchSlot::kExpertInput, blocks * experts.x.units * kTileBytes));
    VN_ASSIGN(hidden.data, scratch<std::byte>(ScratchSlot::kExpertHidden, blocks * hidden.units * kTileBytes));
    set_gate_up(experts.batch);
    VN_CUDA(tile_expert_input(experts.batch, experts.tiles, most_token_tiles(uses, batch.most_groups, terms), experts.x,
                              context.stream));
    experts.batch.num_matrices = 1;  // a block takes both
    VN_CUDA(async_gate_up(context, bank.gate_up, experts, args.activation, hidden));
    experts.x = hidden;
    set_down(experts.batch);
    VN_CUDA(async_experts(context, bank.down, experts));
    return {};
  }

  /// The same of weights in groups.
  [[nodiscard]] bool is_async_groups() const {
    constexpr std::int64_t kFewColumns = 8;
    const auto fits = [&](Packing packing) {
      return has_groups(packing) && has_async_linear(context, packing, terms());
    };
    return fits(bank.gate_up) && fits(bank.down) && args.x.rows > 1 && uses >= kFewColumns * bank.experts;
  }

  /// Such weights: gate and up in one launch, and down in another, whose input has the activation on its way.
  Status multiply_groups_asynchronously(ExpertBatch batch) const {
    const std::int64_t most_tiles = most_token_tiles(uses, batch.most_groups, 1);
    const auto table_size = token_tiles_size(uses, batch.most_groups, 1);
    VN_ASSIGN(std::int32_t* const table, scratch<std::int32_t>(ScratchSlot::kExpertSpare, table_size));
    VN_CUDA(cut_token_tiles(batch.groups, 1, table, context.stream));
    GroupedTokens tokens = {.tiles = token_tiles(table), .most_tiles = most_tiles};
    const auto tiled = [&](Packing packing, std::int64_t cols) {
      return TiledInput{nullptr, group_tiles(group_shape(packing), static_cast<int>(padded(cols) / kUnitCols)), 1};
    };
    TiledInput x = tiled(bank.gate_up, dim);
    TiledInput hidden = tiled(bank.down, ff);
    const std::int64_t blocks = most_token_blocks(uses, batch.most_groups);
    // When the second is made, nothing reads the first any more.
    const std::int64_t bytes = blocks * std::max(x.units, hidden.units) * kTileBytes;
    VN_ASSIGN(x.data, scratch<std::byte>(ScratchSlot::kExpertInput, bytes));
    hidden.data = x.data;
    VN_ASSIGN(float* const gate, scratch<float>(ScratchSlot::kExpertHidden, 2 * uses * ff));
    set_gate_up(batch);
    batch.y[0] = gate;
    batch.y[1] = gate + uses * ff;
    VN_CUDA(tile_expert_groups(batch, bank.gate_up, tokens, x, context.stream));
    VN_CUDA(async_experts(context, bank.gate_up, {batch, tokens.tiles, x}));
    batch.x.data = gate;
    batch.x.stride = ff;
    tokens.up = batch.y[1];
    tokens.spec = args.activation;
    set_down(batch);
    VN_CUDA(tile_expert_groups(batch, bank.down, tokens, hidden, context.stream));
    VN_CUDA(async_experts(context, bank.down, {batch, tokens.tiles, hidden}));
    return {};
  }

  /// Packed weights: gate, up and the activation in one launch.
  Status multiply_packed(ExpertBatch batch) const {
    const std::int64_t rows = uses * batch.x.terms;
    VN_ASSIGN(std::uint16_t* const hidden, scratch<std::uint16_t>(ScratchSlot::kExpertHidden, rows * padded(ff)));
    if (padded(ff) != ff) {
      VN_CUDA(cudaMemsetAsync(hidden, 0, static_cast<std::size_t>(rows * padded(ff)) * 2, context.stream));
    }
    set_gate_up(batch);
    batch.num_matrices = 1;  // a block takes both
    const GatedOutput gated = {.spec = args.activation, .hidden = hidden, .stride = padded(ff)};
    ExpertBatch down = batch;
    down.x.rounded = hidden;
    down.x.rounded_stride = padded(ff);
    set_down(down);
    if (!is_few()) {
      VN_CUDA(narrow_kernels(bank.gate_up).gate_up(batch, gated, context.stream));
      VN_CUDA(narrow_kernels(bank.down).experts(down, context.stream));
      return {};
    }
    const int columns = batch.groups.count != nullptr ? few_columns(uses, bank.experts) : 1;
    const auto blocks = static_cast<unsigned>(context.num_sms);
    FewLaunch launch = {.batch = batch,
                        .next = down.matrix[0],
                        .columns = columns,
                        .combine = {},
                        .shared_bytes = context.max_shared_bytes,
                        .blocks = blocks,
                        .has_bulk = has_async(context, bank.gate_up) && has_async(context, bank.down),
                        .stream = context.stream};
    VN_CUDA(few_kernels(bank.gate_up)->gate_up(launch, gated));
    launch.batch = down;
    launch.next = nullptr;
    if (combines_itself()) {
      launch.combine = combination();
      VN_ASSIGN(launch.arrivals, context.scratch.counters((dim + 31) / 32));
    }
    VN_CUDA(few_kernels(bank.down)->down(launch));
    return {};
  }
};

Status expert_mlp_chunk(CudaContext& context, const ExpertMlpArgs& args, const BankView& bank) {
  const std::int64_t dim = args.x.cols;
  ExpertStep step = {context, args, bank, args.x.rows * args.top_k, dim, args.experts->gate[0].rows};
  VN_ASSIGN(step.results, step.scratch<float>(ScratchSlot::kExpertOutput, step.uses * dim));
  VN_ASSIGN(const ExpertBatch batch, step.make_batch());
  if (!step.is_packed()) {
    VN_TRY(step.multiply_any(batch));
  } else if (step.is_async()) {
    VN_TRY(step.multiply_asynchronously(batch));
  } else if (step.is_async_groups()) {
    VN_TRY(step.multiply_groups_asynchronously(batch));
  } else if (narrow_kernels(bank.gate_up).gate_up == nullptr || has_groups(bank.down) || step.is_wide()) {
    VN_TRY(step.multiply_in_steps(batch));
  } else {
    VN_TRY(step.multiply_packed(batch));
  }
  if (!step.combines_itself()) VN_CUDA(combine_experts(step.combination(), context.stream));
  return {};
}

}  // namespace

Status expert_mlp(CudaContext& context, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  VN_ASSIGN(const BankView bank, device_bank(context, *args.experts));
  return expert_mlp(context, args, bank);
}

Status expert_mlp(CudaContext& context, const ExpertMlpArgs& args, const BankView& bank) {
  for (std::int64_t first = 0; first < args.x.rows; first += kTokensPerChunk) {
    ExpertMlpArgs chunk = args;
    const std::int64_t count = std::min(kTokensPerChunk, args.x.rows - first);
    chunk.x = args.x.slice_rows(first, count);
    chunk.y = args.y.slice_rows(first, count);
    chunk.ids = args.ids + first * args.top_k;
    chunk.weights = args.weights + first * args.top_k;
    VN_TRY(expert_mlp_chunk(context, chunk, bank));
  }
  return {};
}

}  // namespace vernier::cuda
