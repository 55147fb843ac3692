#include <algorithm>
#include <deque>
#include <optional>
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

/// Activations that a worker computes at a time: whole chunks of any kind of weight.
constexpr std::int64_t kActivatedAtOnce = 512;

/// Rows of down that a worker takes of each of a token's experts: enough to read on for a while before the next one.
constexpr std::int64_t kRowsAtOnce = 32;

float bias_of(const std::vector<std::span<const float>>& biases, std::size_t expert, std::int64_t n) {
  if (biases.empty() || biases[expert].empty()) return 0.0F;
  return biases[expert][static_cast<std::size_t>(n)];
}

/// Some weights and the input rows of each; together they form one list of row tiles for the workers.
struct GroupedProduct {
  enum class Part : std::uint8_t { kGate, kUp, kGateAndUp, kDown };
  struct Member {
    const Weight* weight;
    std::span<const float* const> x;
    std::size_t expert;
    Part part;
    std::int64_t first_tile = 0;
    std::int64_t tile_rows = 1;
  };
  std::vector<Member> members;
  std::int64_t num_tiles = 0;
  std::int64_t most_tokens = 0;

  void add(const vernier_isa::Kernels& kernels, Member member) {
    const auto tokens = static_cast<std::int64_t>(member.x.size());
    member.first_tile = num_tiles;
    member.tile_rows = rows_per_tile(row_kernels_of(kernels, *member.weight), tokens);
    num_tiles += (member.weight->rows + member.tile_rows - 1) / member.tile_rows;
    most_tokens = std::max(most_tokens, tokens);
    members.push_back(member);
  }

  /// Calls function(member, row begin, row end) for the rows of tiles [begin, end).
  template <class Function>
  void for_rows(std::int64_t begin, std::int64_t end, Function function) const {
    for (const Member& member : members) {
      const std::int64_t step = member.tile_rows;
      const std::int64_t rows = member.weight->rows;
      const std::int64_t row_begin = std::clamp<std::int64_t>((begin - member.first_tile) * step, 0, rows);
      const std::int64_t row_end = std::clamp<std::int64_t>((end - member.first_tile) * step, 0, rows);
      if (row_begin < row_end) function(member, row_begin, row_end);
    }
  }
};

/// Descriptions of a token's experts, which its weights have driven from the caches since the token before.
void ask_for_descriptions(const ExpertMlpArgs& args) {
  constexpr std::size_t kLine = 64;
  for (std::int32_t i = 0; i < args.top_k; ++i) {
    const std::int32_t id = args.ids[i];
    if (id < 0 || id >= std::ssize(args.experts->gate)) continue;
    for (const auto* weights : {&args.experts->gate, &args.experts->up, &args.experts->down}) {
      const auto* weight = reinterpret_cast<const std::byte*>(&(*weights)[static_cast<std::size_t>(id)]);
      for (std::size_t line = 0; line < sizeof(Weight); line += kLine) __builtin_prefetch(weight + line);
    }
  }
}

/// Gate and up as one weight, if their rows take turns in memory: then it's read from front to back.
std::optional<Weight> interleaved(const Weight& gate, const Weight& up) {
  const bool have_scales = gate.layout == WeightLayout::kSeparate;
  if (gate.format != up.format || gate.layout != up.layout || gate.rows != up.rows || gate.cols != up.cols) return {};
  if (gate.row_stride != up.row_stride || 2 * (up.codes - gate.codes) != gate.row_stride) return {};
  if (!gate.outer.empty() || !up.outer.empty()) return {};
  if (have_scales) {
    if (gate.scale_block_rows != 1 || up.scale_block_rows != 1 || gate.first_row != 0 || up.first_row != 0) return {};
    if (gate.scale_block_cols != up.scale_block_cols || gate.scale_stride != up.scale_stride) return {};
    if (2 * (up.scales - gate.scales) != gate.scale_stride) return {};
  }
  Weight both = gate;
  both.rows *= 2;
  both.row_stride /= 2;
  both.scale_stride /= 2;
  return both;
}

/// Uses of an expert whose inputs are prepared together: [first, first + group_tokens()) of its own.
struct UseGroup {
  std::size_t expert;
  std::int64_t first;
  const vernier_isa::RowKernels* kind;
  GroupInputs inputs;
};

/// Prepared rows of uses, by expert, and room for whole groups of each expert.
struct PreparedUses {
  std::vector<std::int64_t> first_row = {};  ///< of each expert
  std::int64_t num_rows = 0;
  std::int64_t stride = 0;  ///< floats
  float* floats = nullptr;

  void add(const vernier_isa::RowKernels& kind, std::size_t expert, std::int64_t uses, std::int64_t cols) {
    first_row.resize(expert + 1);
    first_row[expert] = num_rows;
    num_rows += prepared_rows(kind, uses);
    stride = std::max(stride, prepared_stride(kind, cols));
  }
  [[nodiscard]] std::int64_t size() const { return num_rows * stride; }
  [[nodiscard]] float* of(std::size_t expert) const { return floats + first_row[expert] * stride; }
};

/// What the phases of one expert_mlp share.
struct ExpertStep {
  const vernier_isa::Kernels& kernels;
  const ExpertMlpArgs& args;
  const ExpertUses& groups;
  Precision precision;
  std::int64_t dim;
  std::int64_t ff;
  float* gate = nullptr;                  ///< [uses, ff], by expert
  float* up = nullptr;                    ///< [uses, ff], by expert
  PreparedUses gate_inputs = {};          ///< where kernels want groups
  PreparedUses up_inputs = {};            ///< likewise, and if they are of another kind than those of gate
  PreparedUses hidden = {};               ///< prepared for down
  float* results = nullptr;               ///< [tokens, top_k, dim]
  float* scratch = nullptr;               ///< of all workers
  std::size_t scratch_part = 0;           ///< of one worker
  std::vector<std::size_t> touched = {};  ///< experts with tokens
  std::vector<UseGroup> input_groups = {};
  std::vector<UseGroup> hidden_groups = {};
  std::deque<Weight> pairs = {};  ///< gate and up of those experts where they are one
  GroupedProduct gate_up = {};    ///< gate and up of each touched expert
  GroupedProduct down = {};       ///< down of each touched expert
  /// A token's choices and their numbers among `touched`, where there is one token.
  struct Choice {
    std::int32_t choice;
    std::size_t product;
  };
  std::vector<Choice> choices = {};

  [[nodiscard]] const vernier_isa::RowKernels& kind(const Weight& weight) const {
    return row_kernels_of(kernels, weight);
  }
  [[nodiscard]] std::int64_t uses_of(std::size_t e) const { return groups.first_use[e + 1] - groups.first_use[e]; }

  /// Notes an expert with tokens; appends to `together` the weights that take inputs prepared once for all experts.
  void touch(std::size_t e, std::vector<const Weight*>& together) {
    touched.push_back(e);
    const auto& gate_kind = kind(args.experts->gate[e]);
    const auto& up_kind = kind(args.experts->up[e]);
    if (gate_kind.prepare_group == nullptr)
      together.push_back(&args.experts->gate[e]);
    else
      gate_inputs.add(gate_kind, e, uses_of(e), dim);
    if (up_kind.prepare_group == nullptr)
      together.push_back(&args.experts->up[e]);
    else if (&up_kind != &gate_kind)
      up_inputs.add(up_kind, e, uses_of(e), dim);
    hidden.add(kind(args.experts->down[e]), e, uses_of(e), ff);
  }

  /// Rows of an expert's uses, and where the pointers to their prepared forms go.
  struct UseRows {
    const float* const* rows;
    std::int64_t cols;
    const float** prepared;
  };

  /// Appends the groups of an expert and sets the pointers to its prepared rows.
  void list_groups(const vernier_isa::RowKernels& kind, std::size_t e, const PreparedUses& uses, const UseRows& of,
                   std::vector<UseGroup>& list) const {
    const GroupInputs inputs = {of.rows, uses_of(e), of.cols, precision, uses.of(e), uses.stride};
    const std::int64_t together = group_tokens(kind);
    for (std::int64_t i = 0; i < inputs.tokens; ++i) {
      of.prepared[i] = inputs.prepared + i / together * together * uses.stride;
      if (i % together == 0) list.push_back({e, i, &kind, inputs});
    }
  }

  /// Fills pointers [5, uses], by expert: the prepared rows for gate, up and down, the rows of x and those of gate.
  void list_products(const PreparedInputs& inputs, const float** pointers) {
    const auto num_uses = static_cast<std::int64_t>(groups.uses.size());
    for (const std::size_t e : touched) {
      const std::int64_t first = groups.first_use[e];
      const auto count = static_cast<std::size_t>(uses_of(e));
      const float** for_gate = pointers + first;
      const float** for_up = for_gate + num_uses;
      const float** for_down = for_up + num_uses;
      const float** x_rows = for_down + num_uses;
      const float** gate_rows = x_rows + num_uses;
      const auto& gate_kind = kind(args.experts->gate[e]);
      const auto& up_kind = kind(args.experts->up[e]);
      for (std::int64_t i = 0; i < uses_of(e); ++i) {
        const std::int64_t token = groups.uses[static_cast<std::size_t>(first + i)] / args.top_k;
        x_rows[i] = args.x.row(token);
        gate_rows[i] = gate + (first + i) * ff;
        const auto row = static_cast<std::size_t>(token);
        if (gate_kind.prepare_group == nullptr) for_gate[i] = inputs.rows(gate_kind)[row];
        if (up_kind.prepare_group == nullptr) for_up[i] = inputs.rows(up_kind)[row];
      }
      if (gate_kind.prepare_group != nullptr)
        list_groups(gate_kind, e, gate_inputs, {x_rows, dim, for_gate}, input_groups);
      if (up_kind.prepare_group != nullptr) {
        if (&up_kind == &gate_kind)
          std::copy_n(for_gate, count, for_up);
        else
          list_groups(up_kind, e, up_inputs, {x_rows, dim, for_up}, input_groups);
      }
      list_groups(kind(args.experts->down[e]), e, hidden, {gate_rows, ff, for_down}, hidden_groups);
      add_products(e, {for_gate, count}, {for_up, count});
      down.add(kernels, {&args.experts->down[e], {for_down, count}, e, GroupedProduct::Part::kDown});
    }
  }

  void add_products(std::size_t e, std::span<const float* const> for_gate, std::span<const float* const> for_up) {
    const Weight& gate_weight = args.experts->gate[e];
    const Weight& up_weight = args.experts->up[e];
    if (std::optional<Weight> both = interleaved(gate_weight, up_weight)) {
      pairs.push_back(*std::move(both));
      gate_up.add(kernels, {&pairs.back(), for_gate, e, GroupedProduct::Part::kGateAndUp});
      return;
    }
    gate_up.add(kernels, {&gate_weight, for_gate, e, GroupedProduct::Part::kGate});
    gate_up.add(kernels, {&up_weight, for_up, e, GroupedProduct::Part::kUp});
  }

  /// Into how many parts a group's activations are cut: those of groups that are prepared together aren't.
  [[nodiscard]] std::int64_t activation_parts() const {
    const bool are_single = std::all_of(hidden_groups.begin(), hidden_groups.end(),
                                        [](const UseGroup& group) { return group.kind->prepare_group == nullptr; });
    return are_single ? (ff + kActivatedAtOnce - 1) / kActivatedAtOnce : 1;
  }

  /// Parts [begin, end) of all groups: what gate and up gave becomes the input of down.
  void activate(std::int64_t begin, std::int64_t end, std::int64_t parts) const {
    const vernier_isa::Gate spec = make_gate(args.activation);
    for (std::int64_t i = begin; i < end; ++i) {
      const UseGroup& group = hidden_groups[static_cast<std::size_t>(i / parts)];
      const std::int64_t from = i % parts * kActivatedAtOnce;
      const std::int64_t count = parts == 1 ? ff : std::min(kActivatedAtOnce, ff - from);
      const std::int64_t last = std::min(group.first + group_tokens(*group.kind), group.inputs.tokens);
      for (std::int64_t t = group.first; t < last; ++t) {
        const std::int64_t at = (groups.first_use[group.expert] + t) * ff + from;
        kernels.activate(spec, gate + at, up + at, count, gate + at);
      }
      if (group.kind->prepare_group != nullptr) {
        prepare_group(*group.kind, group.inputs, group.first);
        continue;
      }
      float* const prepared = group.inputs.prepared + group.first * group.inputs.stride;
      group.kind->prepare(group.inputs.x[group.first] + from, count, precision == Precision::kBf16,
                          prepared + group.kind->input_floats(from));
    }
  }

  void multiply_gate_up(std::int64_t begin, std::int64_t end, int worker) const {
    float* own = scratch + scratch_part * static_cast<std::size_t>(worker);
    using Part = GroupedProduct::Part;
    gate_up.for_rows(begin, end, [&](const GroupedProduct::Member& member, std::int64_t first, std::int64_t last) {
      const std::size_t e = member.expert;
      float* const gate_out = gate + groups.first_use[e] * ff;
      float* const up_out = up + groups.first_use[e] * ff;
      const auto store = [&](bool is_gate, std::int64_t n, std::int64_t t, float product) {
        const auto& biases = is_gate ? args.experts->gate_bias : args.experts->up_bias;
        (is_gate ? gate_out : up_out)[t * ff + n] = product + bias_of(biases, e, n);
      };
      if (member.part == Part::kGateAndUp) {
        multiply_rows(kernels, *member.weight, first, last, member.x, own,
                      [&](std::int64_t n, std::int64_t t, float product) { store(n % 2 == 0, n / 2, t, product); });
        return;
      }
      const bool is_gate = member.part == Part::kGate;
      multiply_rows(kernels, *member.weight, first, last, member.x, own,
                    [&](std::int64_t n, std::int64_t t, float product) { store(is_gate, n, t, product); });
    });
  }

  void multiply_down(std::int64_t begin, std::int64_t end, int worker) const {
    float* own = scratch + scratch_part * static_cast<std::size_t>(worker);
    down.for_rows(begin, end, [&](const GroupedProduct::Member& member, std::int64_t first, std::int64_t last) {
      const std::size_t e = member.expert;
      const std::int64_t* uses = groups.uses.data() + groups.first_use[e];
      multiply_rows(kernels, *member.weight, first, last, member.x, own,
                    [&](std::int64_t n, std::int64_t t, float product) {
                      results[uses[t] * dim + n] = product + bias_of(args.experts->down_bias, e, n);
                    });
    });
  }

  /// Whether one token's products of down may be summed where they are made.
  [[nodiscard]] bool can_sum_at_once() const {
    return args.x.rows == 1 && std::all_of(touched.begin(), touched.end(), [&](std::size_t e) {
             return kind(args.experts->down[e]).prepare_group == nullptr;
           });
  }

  void list_choices() {
    for (std::int32_t choice = 0; choice < args.top_k; ++choice) {
      const auto at = std::find(touched.begin(), touched.end(), static_cast<std::size_t>(args.ids[choice]));
      if (at != touched.end()) choices.push_back({choice, static_cast<std::size_t>(at - touched.begin())});
    }
  }

  /// Down's rows [begin, end) of all experts of one token, summed in the order of its choices.
  void multiply_down_and_add(std::int64_t begin, std::int64_t end, int worker) const {
    float* own = scratch + scratch_part * static_cast<std::size_t>(worker);
    float* y = args.y.row(0);
    const auto uses = static_cast<std::int64_t>(choices.size());
    for (std::int64_t i = 0; i < uses; ++i) {
      const Choice& use = choices[static_cast<std::size_t>(i)];
      const auto e = static_cast<std::size_t>(args.ids[use.choice]);
      const auto& member = down.members[use.product];
      // After the last expert the worker goes on with the rows behind these.
      const bool is_last = i + 1 == uses;
      const std::int64_t after = is_last ? end : begin;
      const Weight& next = *down.members[choices[static_cast<std::size_t>(is_last ? 0 : i + 1)].product].weight;
      const bool is_alike = &kind(next) == &kind(*member.weight) && after < dim;
      multiply_rows(
          kernels, *member.weight, begin, end, member.x.first(1), own,
          [&](std::int64_t n, std::int64_t, float value) {
            y[n] += args.weights[use.choice] * (value + bias_of(args.experts->down_bias, e, n));
          },
          is_alike ? coming_rows(next, after) : vernier_isa::ComingRows{});
    }
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
  if (args.norm.present()) {
    VN_TRY(rms_norm(norm_of(args)));
    return route_experts(after_norm(args));
  }
  const std::int64_t experts = args.router->rows;
  const vernier_isa::Kernels& kernels = unrounded_kernels(kernels_);
  VN_TRY(inputs_.prepare(pool_, kernels, args.x, Precision::kF32, std::span(&args.router, 1)));
  const vernier_isa::RowKernels& kind = row_kernels_of(kernels, *args.router);
  const std::span<const float* const> x = inputs_.rows(kind);
  VN_ASSIGN(float* logits, expert_floats_.get(static_cast<std::size_t>(args.x.rows * experts)));
  const std::size_t part = row_scratch_floats(kernels, args.x.rows);
  VN_ASSIGN(float* scratch, worker_floats_.get(part * static_cast<std::size_t>(pool_.size())));
  const std::int64_t step = rows_per_tile(kind, args.x.rows);
  const auto multiply = [&](std::int64_t begin, std::int64_t end, int worker) {
    multiply_rows(kernels, *args.router, begin * step, std::min(end * step, experts), x,
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
  if (args.x.rows == 1) ask_for_descriptions(args);
  VN_ASSIGN(const ExpertUses groups, group_by_expert({args.ids, static_cast<std::size_t>(num_choices)}, num_experts));
  const auto num_uses = static_cast<std::int64_t>(groups.uses.size());
  if (num_uses == 0) return {};

  // Uses are sorted by expert. Use i of that order has row i of gate and up.
  ExpertStep step = {
      .kernels = kernels_, .args = args, .groups = groups, .precision = precision_, .dim = dim, .ff = ff};
  weights_.clear();
  for (std::size_t e = 0; e < args.experts->gate.size(); ++e) {
    if (groups.first_use[e] == groups.first_use[e + 1]) continue;
    for (const auto* weights : {&args.experts->gate, &args.experts->up, &args.experts->down}) {
      VN_TRY(check_decodable((*weights)[e]));
    }
    step.touch(e, weights_);
  }
  VN_TRY(inputs_.prepare(pool_, kernels_, args.x, precision_, weights_));
  const std::int64_t prepared = step.hidden.size() + step.gate_inputs.size() + step.up_inputs.size();
  VN_ASSIGN(step.hidden.floats,
            expert_floats_.get(static_cast<std::size_t>(prepared + 2 * num_uses * ff + num_choices * dim)));
  step.gate_inputs.floats = step.hidden.floats + step.hidden.size();
  step.up_inputs.floats = step.gate_inputs.floats + step.gate_inputs.size();
  step.gate = step.up_inputs.floats + step.up_inputs.size();
  step.up = step.gate + num_uses * ff;
  step.results = step.up + num_uses * ff;
  VN_ASSIGN(const float** pointers, expert_pointers_.get(static_cast<std::size_t>(5 * num_uses)));
  step.list_products(inputs_, pointers);
  step.scratch_part = row_scratch_floats(kernels_, step.gate_up.most_tokens);
  VN_ASSIGN(step.scratch, worker_floats_.get(step.scratch_part * static_cast<std::size_t>(pool_.size())));

  const auto prepare = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t g = begin; g < end; ++g) {
      const UseGroup& group = step.input_groups[static_cast<std::size_t>(g)];
      prepare_group(*group.kind, group.inputs, group.first);
    }
  };
  pool_.parallel_for(static_cast<std::int64_t>(step.input_groups.size()), prepare, 8192 / dim + 1);
  const auto multiply_gate_up = [&](std::int64_t begin, std::int64_t end, int worker) {
    step.multiply_gate_up(begin, end, worker);
  };
  pool_.parallel_for(step.gate_up.num_tiles, multiply_gate_up, min_tiles_per_worker(dim, 1));
  const std::int64_t parts = step.activation_parts();
  const auto activate = [&](std::int64_t begin, std::int64_t end, int) { step.activate(begin, end, parts); };
  pool_.parallel_for(static_cast<std::int64_t>(step.hidden_groups.size()) * parts, activate, 1024 * parts / ff + 1);
  if (step.can_sum_at_once()) {
    step.list_choices();
    const auto multiply_and_add = [&](std::int64_t begin, std::int64_t end, int worker) {
      step.multiply_down_and_add(begin * kRowsAtOnce, std::min(end * kRowsAtOnce, dim), worker);
    };
    pool_.parallel_for((dim + kRowsAtOnce - 1) / kRowsAtOnce, multiply_and_add,
                       min_tiles_per_worker(ff * num_uses * kRowsAtOnce / 4, 1));
    return {};
  }
  const auto multiply_down = [&](std::int64_t begin, std::int64_t end, int worker) {
    step.multiply_down(begin, end, worker);
  };
  pool_.parallel_for(step.down.num_tiles, multiply_down, min_tiles_per_worker(ff, 1));
  const auto add = [&](std::int64_t begin, std::int64_t end, int) { step.add_results(begin, end); };
  pool_.parallel_for(args.x.rows, add, 16384 / dim + 1);
  return {};
}

}  // namespace vernier
