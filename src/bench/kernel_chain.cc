// Linears one behind the other, as the layers of a decode step are.
#include "bench/kernel_cases.h"
#include "bench/list.h"

namespace vernier::bench {
namespace {

constexpr std::pair<std::string_view, Chain> kNames[] = {
    {"apart", Chain::kApart}, {"overlap", Chain::kOverlap}, {"norm", Chain::kNorm}};

/// What a chain of linears calls.
struct ChainLink {
  Backend* backend = nullptr;
  std::shared_ptr<const LinearOperands> operands;
  std::shared_ptr<Buffer> norm_weight;
  std::shared_ptr<Buffer> normed;
  LinearShape shape;
  std::int32_t tokens = 0;
  bool has_norm = false;

  [[nodiscard]] Status run(std::int64_t call) const {
    LinearOutput output;
    output.weight = &operands->weights[static_cast<std::size_t>(call) % operands->weights.size()];
    output.y = matrix_of(*operands->y, tokens, shape.rows);
    LinearArgs args = {matrix_of(*operands->x, tokens, shape.cols), {&output, 1}};
    if (has_norm) {
      const auto cols = static_cast<std::size_t>(shape.cols);
      args.norm = {
          {static_cast<const float*>(norm_weight->data()), cols}, 1e-6F, matrix_of(*normed, tokens, shape.cols)};
    }
    return backend->linear(args);
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
  VN_ASSIGN(const auto operands, linear_operands(context, format, shape, tokens));
  const std::int64_t most = *std::max_element(tokens.begin(), tokens.end());
  VN_ASSIGN(const auto norm_weight, random_floats(*context.backend, shape.cols));
  VN_ASSIGN(const auto normed, random_floats(*context.backend, most * shape.cols));
  KernelGroup group;
  for (const std::int32_t m : tokens) {
    for (const Chain chain : chains) {
      KernelCase one = describe_linear(format, shape, m, operands->weight_bytes);
      one.op = fmt::format("chain {}", kNames[static_cast<std::size_t>(chain)].first);
      one.copies = static_cast<std::int64_t>(operands->weights.size());
      one.step.overlap = chain != Chain::kApart;
      const ChainLink link = {context.backend, operands, norm_weight, normed, shape, m, chain == Chain::kNorm};
      one.run = [link](std::int64_t call) { return link.run(call); };
      group.push_back(std::move(one));
    }
  }
  return group;
}

}  // namespace vernier::bench
