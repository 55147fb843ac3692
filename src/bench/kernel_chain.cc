// Linears one behind the other, as the layers of a decode step are.
#include <array>
#include <atomic>

#include "bench/kernel_cases.h"
#include "bench/list.h"

namespace vernier::bench {
namespace {

constexpr std::pair<std::string_view, Chain> kNames[] = {
    {"apart", Chain::kApart}, {"overlap", Chain::kOverlap}, {"norm", Chain::kNorm}};

/// What a chain of linears calls.
struct ChainRun {
  Backend* backend = nullptr;
  std::shared_ptr<const LinearOperands> operands;
  std::shared_ptr<Buffer> norm_weight;
  std::shared_ptr<Buffer> normed;
  LinearShape shape;
  std::int32_t tokens = 0;
  Chain chain{};
  std::uint64_t owner = 0;

  [[nodiscard]] Status linears() const {
    const std::vector<Weight>& weights = operands->weights;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      LinearOutput output;
      output.weight = &weights[i];
      output.y = matrix_of(*operands->y, tokens, shape.rows);
      LinearArgs args = {matrix_of(*operands->x, tokens, shape.cols), {&output, 1}};
      if (chain == Chain::kNorm) {
        const auto cols = static_cast<std::size_t>(shape.cols);
        args.norm = {
            {static_cast<const float*>(norm_weight->data()), cols}, 1e-6F, matrix_of(*normed, tokens, shape.cols)};
      }
      VN_TRY(backend->linear(args));
    }
    return {};
  }

  /// As a step of one sequence, which is what devices record.
  [[nodiscard]] Status step() const {
    constexpr std::array<std::int32_t, 1> kPages = {0};
    constexpr std::array<std::int32_t, 1> kTokens = {0};
    const SequenceSlice slice = {.first_row = 0, .num_tokens = 1, .past = 0, .pages = kPages};
    const RepeatableStep repeatable = {
        .owner = owner, .tokens = kTokens, .slices = {&slice, 1}, .overlap = chain != Chain::kApart};
    return backend->run_step(repeatable, [this] { return linears(); });
  }
};

}  // namespace

Result<std::vector<Chain>> parse_chains(const std::string& text) {
  std::vector<Chain> chains;
  if (text.empty()) return chains;
  for (const std::string_view part : split_list(text)) {
    const auto* const found =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& name) { return name.first == part; });
    if (found == std::end(kNames)) {
      return fail_with_hint(ErrorCode::kInvalidArgument, "known: apart, overlap, norm", "--chain: unknown chain '{}'",
                            escape(part));
    }
    chains.push_back(found->second);
  }
  return chains;
}

Result<KernelGroup> chain_cases(const CaseContext& context, const StoredFormat& format, const LinearShape& shape,
                                const std::vector<std::int32_t>& tokens, const std::vector<Chain>& chains) {
  static std::atomic<std::uint64_t> owners = std::uint64_t{1} << 63;  // far from those of models
  VN_ASSIGN(const auto operands, linear_operands(context, format, shape, tokens));
  const std::int64_t most = *std::max_element(tokens.begin(), tokens.end());
  VN_ASSIGN(const auto norm_weight, random_floats(*context.backend, shape.cols));
  VN_ASSIGN(const auto normed, random_floats(*context.backend, most * shape.cols));
  KernelGroup group;
  for (const std::int32_t m : tokens) {
    for (const Chain chain : chains) {
      KernelCase one = describe_linear(format, shape, m, operands->weight_bytes);
      one.op = fmt::format("chain {}", kNames[static_cast<std::size_t>(chain)].first);
      one.steps = static_cast<std::int64_t>(operands->weights.size());
      const ChainRun run = {context.backend, operands, norm_weight, normed, shape, m, chain, owners++};
      one.run = [run](std::int64_t) { return run.step(); };
      group.push_back(std::move(one));
    }
  }
  return group;
}

}  // namespace vernier::bench
