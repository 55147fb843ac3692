#include <vector>

#include "backend/check_args.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gate.h"
#include "backend/cpu/row_products.h"
#include "backend/routing.h"

namespace vernier {
namespace {

/// Tokens that expert_mlp takes at a time: bounds its memory, and is enough to make decoding cheap beside multiplying.
constexpr std::int64_t kTokensPerChunk = 512;

float bias_of(const std::vector<std::span<const float>>& biases, std::size_t expert, std::int64_t n) {
  if (biases.empty() || biases[expert].empty()) return 0.0F;
  return biases[expert][static_cast<std::size_t>(n)];
}

/// Some weights and the input rows of each; together they form one list of row tiles for the workers.
struct GroupedProduct {
  struct Member {
    const Weight* weight;
    std::span<const float* const> x;
    std::int64_t first_tile;
  };
  std::vector<Member> members;
  std::int64_t num_tiles = 0;
  std::int64_t most_tokens = 0;

  void add(const Weight& weight, std::span<const float* const> x) {
    members.push_back({&weight, x, num_tiles});
    const std::int64_t step = rows_per_tile(static_cast<std::int64_t>(x.size()));
    num_tiles += (weight.rows + step - 1) / step;
    most_tokens = std::max(most_tokens, static_cast<std::int64_t>(x.size()));
  }

  /// Calls function(member index, row begin, row end) for the rows of tiles [begin, end).
  template <class Function>
  void for_rows(std::int64_t begin, std::int64_t end, Function function) const {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Member& member = members[i];
      const std::int64_t step = rows_per_tile(static_cast<std::int64_t>(member.x.size()));
      const std::int64_t rows = member.weight->rows;
      const std::int64_t row_begin = std::clamp<std::int64_t>((begin - member.first_tile) * step, 0, rows);
      const std::int64_t row_end = std::clamp<std::int64_t>((end - member.first_tile) * step, 0, rows);
      if (row_begin < row_end) function(i, row_begin, row_end);
    }
  }
};

/// What the phases of one expert_mlp share.
struct ExpertStep {
  const ExpertMlpArgs& args;
  const ExpertUses& groups;
  std::int64_t dim;
  std::int64_t ff;
  float* gate = nullptr;                  ///< [uses, ff], by expert
  float* up = nullptr;                    ///< [uses, ff], by expert
  float* hidden = nullptr;                ///< [uses, hidden_stride]: prepared for down, by expert
  std::int64_t hidden_stride = 0;         ///< floats
  float* results = nullptr;               ///< [tokens, top_k, dim]
  float* scratch = nullptr;               ///< of all workers
  std::size_t scratch_part = 0;           ///< of one worker
  std::vector<std::size_t> touched = {};  ///< experts with tokens
  GroupedProduct gate_up = {};            ///< gate and up of each touched expert
  GroupedProduct down = {};               ///< down of each touched expert

  /// Fills pointers [3, uses], by expert: the prepared rows for gate, up and down.
  void list_products(const vernier_isa::Kernels& kernels, const PreparedInputs& inputs, const float** pointers) {
    const auto num_uses = static_cast<std::int64_t>(groups.uses.size());
    for (const std::size_t e : touched) {
      const std::int64_t first = groups.first_use[e];
      const std::int64_t end = groups.first_use[e + 1];
      const auto count = static_cast<std::size_t>(end - first);
      const auto gate_rows = inputs.rows(row_kernels_of(kernels, args.experts->gate[e]));
      const auto up_rows = inputs.rows(row_kernels_of(kernels, args.experts->up[e]));
      for (std::int64_t i = first; i < end; ++i) {
        const auto token = static_cast<std::size_t>(groups.uses[static_cast<std::size_t>(i)] / args.top_k);
        pointers[i] = gate_rows[token];
        pointers[num_uses + i] = up_rows[token];
        pointers[2 * num_uses + i] = hidden + i * hidden_stride;
      }
      gate_up.add(args.experts->gate[e], {pointers + first, count});
      gate_up.add(args.experts->up[e], {pointers + num_uses + first, count});
      down.add(args.experts->down[e], {pointers + 2 * num_uses + first, count});
    }
  }

  /// Uses [begin, end), by expert: what gate and up gave becomes the input of down.
  void activate(const vernier_isa::Kernels& kernels, Precision precision, std::int64_t begin, std::int64_t end) const {
    const vernier_isa::Gate spec = make_gate(args.activation);
    for (const std::size_t e : touched) {
      const vernier_isa::RowKernels& kind = row_kernels_of(kernels, args.experts->down[e]);
      const std::int64_t last = std::min(end, groups.first_use[e + 1]);
      for (std::int64_t i = std::max(begin, groups.first_use[e]); i < last; ++i) {
        float* row = gate + i * ff;
        kernels.activate(spec, row, up + i * ff, ff, row);
        kind.prepare(row, ff, precision == Precision::kBf16, hidden + i * hidden_stride);
      }
    }
  }

  void multiply_gate_up(const vernier_isa::Kernels& kernels, std::int64_t begin, std::int64_t end, int worker) const {
    float* own = scratch + scratch_part * static_cast<std::size_t>(worker);
    gate_up.for_rows(begin, end, [&](std::size_t i, std::int64_t row_begin, std::int64_t row_end) {
      const std::size_t e = touched[i / 2];
      const bool is_gate = i % 2 == 0;
      float* out = (is_gate ? gate : up) + groups.first_use[e] * ff;
      const auto& biases = is_gate ? args.experts->gate_bias : args.experts->up_bias;
      const auto& member = gate_up.members[i];
      multiply_rows(
          kernels, *member.weight, row_begin, row_end, member.x, own,
          [&](std::int64_t n, std::int64_t t, float product) { out[t * ff + n] = product + bias_of(biases, e, n); });
    });
  }

  void multiply_down(const vernier_isa::Kernels& kernels, std::int64_t begin, std::int64_t end, int worker) const {
    float* own = scratch + scratch_part * static_cast<std::size_t>(worker);
    down.for_rows(begin, end, [&](std::size_t i, std::int64_t row_begin, std::int64_t row_end) {
      const std::size_t e = touched[i];
      const std::int64_t* uses = groups.uses.data() + groups.first_use[e];
      const auto& member = down.members[i];
      multiply_rows(kernels, *member.weight, row_begin, row_end, member.x, own,
                    [&](std::int64_t n, std::int64_t t, float product) {
                      results[uses[t] * dim + n] = product + bias_of(args.experts->down_bias, e, n);
                    });
    });
  }

  /// Tokens [begin, end): the sum follows the order of a token's choices.
  void add_results(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t use = begin * args.top_k; use < end * args.top_k; ++use) {
      if (args.ids[use] == -1) continue;
      float* y = args.y.row(use / args.top_k);
      for (std::int64_t i = 0; i < dim; ++i) y[i] += args.weights[use] * results[use * dim + i];
    }
  }
};

}  // namespace

Status CpuBackend::route_experts(const RouteArgs& args) {
  VN_TRY(check_args(args));
  VN_TRY(check_decodable(*args.router));
  if (args.x.rows == 0) return {};
  const std::int64_t experts = args.router->rows;
  VN_TRY(inputs_.prepare(pool_, kernels_, args.x, Precision::kF32, std::span(&args.router, 1)));
  const std::span<const float* const> x = inputs_.rows(row_kernels_of(kernels_, *args.router));
  VN_ASSIGN(float* logits, expert_floats_.get(static_cast<std::size_t>(args.x.rows * experts)));
  const std::size_t part = row_scratch_floats(args.x.rows);
  VN_ASSIGN(float* scratch, worker_floats_.get(part * static_cast<std::size_t>(pool_.size())));
  const std::int64_t step = rows_per_tile(args.x.rows);
  const auto multiply = [&](std::int64_t begin, std::int64_t end, int worker) {
    multiply_rows(kernels_, *args.router, begin * step, std::min(end * step, experts), x,
                  scratch + part * static_cast<std::size_t>(worker),
                  [&](std::int64_t n, std::int64_t t, float product) {
                    if (!args.bias.empty()) product += args.bias[static_cast<std::size_t>(n)];
                    logits[t * experts + n] = product;
                  });
  };
  pool_.parallel_for((experts + step - 1) / step, multiply, min_tiles_per_worker(args.x.cols, args.x.rows));
  for (std::int64_t t = 0; t < args.x.rows; ++t) {
    const std::span<const float> row(logits + t * experts, static_cast<std::size_t>(experts));
    choose_experts(args, row, args.ids + t * args.top_k, args.weights + t * args.top_k);
  }
  return {};
}

Status CpuBackend::expert_mlp(const ExpertMlpArgs& args) {
  VN_TRY(check_args(args));
  for (const auto* weights : {&args.experts->gate, &args.experts->up, &args.experts->down}) {
    for (const Weight& weight : *weights) VN_TRY(check_decodable(weight));
  }
  for (std::int64_t first = 0; first < args.x.rows; first += kTokensPerChunk) {
    ExpertMlpArgs chunk = args;
    const std::int64_t count = std::min(kTokensPerChunk, args.x.rows - first);
    chunk.x = args.x.slice_rows(first, count);
    chunk.y = args.y.slice_rows(first, count);
    chunk.ids = args.ids + first * args.top_k;
    chunk.weights = args.weights + first * args.top_k;
    VN_TRY(expert_mlp_chunk(chunk));
  }
  return {};
}

Status CpuBackend::expert_mlp_chunk(const ExpertMlpArgs& args) {
  const auto num_experts = static_cast<std::int64_t>(args.experts->gate.size());
  const std::int64_t dim = args.x.cols;
  const std::int64_t ff = args.experts->gate[0].rows;
  const std::int64_t num_choices = args.x.rows * args.top_k;
  VN_ASSIGN(const ExpertUses groups, group_by_expert({args.ids, static_cast<std::size_t>(num_choices)}, num_experts));
  const auto num_uses = static_cast<std::int64_t>(groups.uses.size());
  if (num_uses == 0) return {};

  // Uses are sorted by expert. Use i of that order has row i of gate, up and hidden.
  ExpertStep step = {.args = args, .groups = groups, .dim = dim, .ff = ff};
  weights_.clear();
  for (std::size_t e = 0; e < args.experts->gate.size(); ++e) {
    if (groups.first_use[e] == groups.first_use[e + 1]) continue;
    step.touched.push_back(e);
    weights_.push_back(&args.experts->gate[e]);
    weights_.push_back(&args.experts->up[e]);
    const auto& down = row_kernels_of(kernels_, args.experts->down[e]);
    step.hidden_stride = std::max(step.hidden_stride, prepared_stride(down, ff));
  }
  VN_TRY(inputs_.prepare(pool_, kernels_, args.x, precision_, weights_));
  const std::int64_t a_use = step.hidden_stride + 2 * ff;
  VN_ASSIGN(step.hidden, expert_floats_.get(static_cast<std::size_t>(num_uses * a_use + num_choices * dim)));
  step.gate = step.hidden + num_uses * step.hidden_stride;
  step.up = step.gate + num_uses * ff;
  step.results = step.up + num_uses * ff;
  VN_ASSIGN(const float** pointers, expert_pointers_.get(static_cast<std::size_t>(3 * num_uses)));
  step.list_products(kernels_, inputs_, pointers);
  step.scratch_part = row_scratch_floats(step.gate_up.most_tokens);
  VN_ASSIGN(step.scratch, worker_floats_.get(step.scratch_part * static_cast<std::size_t>(pool_.size())));

  const auto multiply_gate_up = [&](std::int64_t begin, std::int64_t end, int worker) {
    step.multiply_gate_up(kernels_, begin, end, worker);
  };
  pool_.parallel_for(step.gate_up.num_tiles, multiply_gate_up, min_tiles_per_worker(dim, 1));
  const auto activate = [&](std::int64_t begin, std::int64_t end, int) {
    step.activate(kernels_, precision_, begin, end);
  };
  pool_.parallel_for(num_uses, activate, 8192 / ff + 1);
  const auto multiply_down = [&](std::int64_t begin, std::int64_t end, int worker) {
    step.multiply_down(kernels_, begin, end, worker);
  };
  pool_.parallel_for(step.down.num_tiles, multiply_down, min_tiles_per_worker(ff, 1));
  const auto add = [&](std::int64_t begin, std::int64_t end, int) { step.add_results(begin, end); };
  pool_.parallel_for(args.x.rows, add, 16384 / dim + 1);
  return {};
}

}  // namespace vernier
