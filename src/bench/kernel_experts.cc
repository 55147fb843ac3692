// Layers with experts: the router, the experts' products, and both as a step has them. And norms, which show what the
// way from one kernel to the next takes.
#include <cmath>
#include <cstring>
#include <set>

#include "base/mapped_file.h"
#include "bench/kernel_cases.h"
#include "bench/random.h"
#include "format/scalar_codecs.h"

namespace vernier::bench {
namespace {

constexpr std::int64_t kSets = 64;          // of choices drawn beforehand
constexpr std::int64_t kRouters = 64;       // so many layers' routers are rotated
constexpr std::int64_t kLinks = 32;         // least number of calls until anything repeats
constexpr std::int32_t kVocabulary = 1024;  // tokens that inputs of routers are drawn from

/// Choices of experts, distinct within a token, evenly drawn: `sets` times `tokens` times `used`.
struct Routes {
  std::shared_ptr<Buffer> ids;
  std::shared_ptr<Buffer> weights;
  double distinct = 0.0;  ///< experts that a set touches, on average
};

Result<Routes> draw_routes(Backend& backend, const ExpertShape& shape, std::int32_t tokens, std::int64_t sets) {
  Random random(static_cast<std::uint64_t>(tokens));
  std::vector<std::int32_t> ids;
  Routes routes;
  for (std::int64_t s = 0; s < sets; ++s) {
    std::set<std::int32_t> touched;
    for (std::int32_t t = 0; t < tokens; ++t) {
      std::set<std::int32_t> own;
      while (own.size() < static_cast<std::size_t>(shape.used)) {
        own.insert(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(shape.experts))));
      }
      ids.insert(ids.end(), own.begin(), own.end());
      touched.insert(own.begin(), own.end());
    }
    routes.distinct += static_cast<double>(touched.size()) / static_cast<double>(sets);
  }
  std::vector<std::byte> bytes(ids.size() * sizeof(ids[0]));
  std::memcpy(bytes.data(), ids.data(), bytes.size());
  VN_ASSIGN(routes.ids, repeated_bytes(backend, bytes, bytes.size()));
  VN_ASSIGN(routes.weights, random_floats(backend, static_cast<std::int64_t>(ids.size()), 0.1F));
  return routes;
}

/// What all cases of a shape share.
struct Layers {
  Backend* backend = nullptr;
  ExpertShape shape;
  std::string format;
  double expert_bytes = 0.0;
  double router_bytes = 0.0;
  std::vector<ExpertWeights> banks;  ///< none where only routers are measured
  std::vector<Weight> routers;
  Weight embedding;
  std::shared_ptr<Buffer> x, y, ids, weights;

  [[nodiscard]] RouteArgs route(std::int64_t call, std::int32_t tokens) const {
    RouteArgs args;
    args.x = matrix_of(*x, tokens, shape.dim);
    args.router = &routers[static_cast<std::size_t>(call) % routers.size()];
    args.top_k = shape.used;
    args.ids = static_cast<std::int32_t*>(ids->data());
    args.weights = static_cast<float*>(weights->data());
    return args;
  }

  [[nodiscard]] Status run_experts(std::int64_t call, std::int32_t tokens, const std::int32_t* chosen,
                                   const float* factors) const {
    ExpertMlpArgs args;
    args.x = matrix_of(*x, tokens, shape.dim);
    args.experts = &banks[static_cast<std::size_t>(call) % banks.size()];
    args.top_k = shape.used;
    args.ids = chosen;
    args.weights = factors;
    args.y = matrix_of(*y, tokens, shape.dim);
    return backend->expert_mlp(args);
  }
};

Result<ExpertWeights> make_bank(const CaseContext& context, const StoredFormat& format, const ExpertShape& shape) {
  ExpertWeights bank;
  VN_ASSIGN(bank.gate, make_weights(context, format, {shape.width, shape.dim}, shape.experts));
  VN_ASSIGN(bank.up, make_weights(context, format, {shape.width, shape.dim}, shape.experts));
  VN_ASSIGN(bank.down, make_weights(context, format, {shape.dim, shape.width}, shape.experts));
  return bank;
}

/// Rows that have nothing in common, as those of a repeated tile would.
Result<Weight> make_embedding(Backend& backend, const StoredFormat& plain, std::int64_t dim) {
  Random random(11);
  const std::int64_t count = kVocabulary * dim;
  VN_ASSIGN(const MappedFile::InMemory memory,
            MappedFile::in_memory(static_cast<std::uint64_t>(count) * sizeof(std::uint16_t), "embedding"));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t code = BF16Codec::encode(random.normal());
    std::memcpy(memory.bytes.data() + static_cast<std::size_t>(i) * sizeof(code), &code, sizeof(code));
  }
  Weight weight;
  weight.format = plain.format;
  weight.layout = plain.layout;
  weight.rows = kVocabulary;
  weight.cols = dim;
  weight.row_stride = dim * static_cast<std::int64_t>(sizeof(std::uint16_t));
  weight.codes = memory.bytes.data();
  weight.owner = memory.file;
  return backend.place(weight);
}

Result<std::shared_ptr<const Layers>> make_layers(const CaseContext& context, const StoredFormat& format,
                                                  const ExpertShape& shape, std::int64_t most_tokens, bool has_banks) {
  VN_ASSIGN(const std::vector<StoredFormat> plain, parse_formats("bf16"));
  auto layers = std::make_shared<Layers>();
  layers->backend = context.backend;
  layers->shape = shape;
  layers->format = format.name;
  VN_ASSIGN(const double wide, weight_bytes(format, {shape.width, shape.dim}));
  VN_ASSIGN(const double down, weight_bytes(format, {shape.dim, shape.width}));
  VN_ASSIGN(layers->router_bytes, weight_bytes(plain.front(), {shape.experts, shape.dim}));
  layers->expert_bytes = 2.0 * wide + down;
  const double bank_bytes = layers->expert_bytes * static_cast<double>(shape.experts);
  const std::int64_t copies = has_banks ? copies_for(context, bank_bytes) : 0;
  VN_TRY(check_room(*context.backend, kOperands, bank_bytes * static_cast<double>(copies)));
  for (std::int64_t i = 0; i < copies; ++i) {
    VN_ASSIGN(ExpertWeights bank, make_bank(context, format, shape));
    layers->banks.push_back(std::move(bank));
  }
  VN_ASSIGN(layers->routers, make_weights(context, plain.front(), {shape.experts, shape.dim}, kRouters));
  VN_ASSIGN(layers->embedding, make_embedding(*context.backend, plain.front(), shape.dim));
  VN_ASSIGN(layers->x, random_floats(*context.backend, most_tokens * shape.dim));
  VN_ASSIGN(layers->y, random_floats(*context.backend, most_tokens * shape.dim));
  const auto choices = static_cast<std::size_t>(most_tokens * shape.used);
  const std::vector<std::byte> zeros(choices * sizeof(float));
  VN_ASSIGN(layers->ids, repeated_bytes(*context.backend, zeros, zeros.size()));
  VN_ASSIGN(layers->weights, repeated_bytes(*context.backend, zeros, zeros.size()));
  return std::shared_ptr<const Layers>(std::move(layers));
}

KernelCase describe(const Layers& layers, std::string_view op, std::int32_t tokens) {
  KernelCase one;
  one.op = op;
  one.format = layers.format;
  one.shape = layers.shape.name();
  one.tokens = tokens;
  one.copies = std::max<std::int64_t>(static_cast<std::int64_t>(layers.banks.size()), kLinks);
  return one;
}

double expert_flops(const ExpertShape& shape, std::int32_t tokens) {
  return 6.0 * tokens * shape.used * static_cast<double>(shape.dim * shape.width);
}

double router_flops(const ExpertShape& shape, std::int32_t tokens) {
  return 2.0 * tokens * static_cast<double>(shape.experts * shape.dim);
}

Result<KernelCase> experts_case(const std::shared_ptr<const Layers>& layers, std::int32_t tokens) {
  VN_ASSIGN(const Routes routes, draw_routes(*layers->backend, layers->shape, tokens, kSets));
  KernelCase one = describe(*layers, "experts", tokens);
  one.bytes = routes.distinct * layers->expert_bytes;
  one.flops = expert_flops(layers->shape, tokens);
  one.run = [layers, routes, tokens](std::int64_t call) {
    const std::int64_t at = call % kSets * tokens * layers->shape.used;
    return layers->run_experts(call, tokens, static_cast<const std::int32_t*>(routes.ids->data()) + at,
                               static_cast<const float*>(routes.weights->data()) + at);
  };
  return one;
}

/// Other tokens in each step, so that routers choose other experts.
StepInputs drawn_tokens(const std::shared_ptr<const Layers>& layers, std::int32_t tokens) {
  StepInputs step;
  step.tokens.assign(static_cast<std::size_t>(tokens), 0);
  step.vocabulary = kVocabulary;
  step.begin = [layers, tokens](std::span<const std::int32_t> drawn) {
    EmbedArgs args;
    args.tokens = drawn;
    args.table = &layers->embedding;
    args.x = matrix_of(*layers->x, tokens, layers->shape.dim);
    return layers->backend->embed(args);
  };
  return step;
}

KernelCase mixture_case(const std::shared_ptr<const Layers>& layers, std::int32_t tokens) {
  const ExpertShape& shape = layers->shape;
  KernelCase one = describe(*layers, "mixture", tokens);
  // As many experts as so many tokens touch when they choose evenly.
  const auto all = static_cast<double>(shape.experts);
  const double untouched = std::pow(1.0 - shape.used / all, tokens);
  one.bytes = all * (1.0 - untouched) * layers->expert_bytes + layers->router_bytes;
  one.flops = expert_flops(shape, tokens) + router_flops(shape, tokens);
  one.step = drawn_tokens(layers, tokens);
  one.run = [layers, tokens](std::int64_t call) -> Status {
    const RouteArgs route = layers->route(call, tokens);
    VN_TRY(layers->backend->route_experts(route));
    return layers->run_experts(call, tokens, route.ids, route.weights);
  };
  return one;
}

KernelCase router_case(const std::shared_ptr<const Layers>& layers, std::int32_t tokens) {
  KernelCase one = describe(*layers, "router", tokens);
  one.format = "bf16";
  one.bytes = layers->router_bytes + 4.0 * tokens * static_cast<double>(layers->shape.dim);
  one.flops = router_flops(layers->shape, tokens);
  one.copies = kRouters;
  one.step = drawn_tokens(layers, tokens);
  one.run = [layers, tokens](std::int64_t call) { return layers->backend->route_experts(layers->route(call, tokens)); };
  return one;
}

}  // namespace

Result<KernelGroup> expert_cases(const CaseContext& context, const StoredFormat& format, const ExpertShape& shape,
                                 const std::vector<ExpertOp>& ops) {
  std::vector<std::int32_t> counts = context.tokens;
  if (counts.empty() && context.backend->is_host()) counts = {1, 4, 16, 128, 512};
  if (counts.empty()) counts = {1, 16, 64, 128, 256};
  const std::int32_t most = *std::max_element(counts.begin(), counts.end());
  const bool has_banks = std::any_of(ops.begin(), ops.end(), [](ExpertOp op) { return op != ExpertOp::kRouter; });
  VN_ASSIGN(const auto layers, make_layers(context, format, shape, most, has_banks));
  KernelGroup group;
  for (const ExpertOp op : ops) {
    for (const std::int32_t tokens : counts) {
      if (op == ExpertOp::kExperts) {
        VN_ASSIGN(KernelCase one, experts_case(layers, tokens));
        group.push_back(std::move(one));
      } else {
        group.push_back(op == ExpertOp::kMixture ? mixture_case(layers, tokens) : router_case(layers, tokens));
      }
    }
  }
  return group;
}

Result<KernelGroup> norm_cases(const CaseContext& context) {
  constexpr std::int64_t kWidth = 4096;
  VN_ASSIGN(const auto x, random_floats(*context.backend, kWidth));
  VN_ASSIGN(const auto weight, random_floats(*context.backend, kWidth));
  KernelCase one;
  one.op = "norm";
  one.format = "f32";
  one.shape = fmt::format("{}", kWidth);
  one.tokens = 1;
  one.bytes = 3.0 * kWidth * sizeof(float);
  one.flops = 4.0 * kWidth;
  one.copies = kSets;
  one.run = [backend = context.backend, x, weight](std::int64_t) {
    RmsNormArgs args;
    args.x = args.y = matrix_of(*x, 1, kWidth);  // in place: each waits for the one in front
    args.weight = {static_cast<const float*>(weight->data()), static_cast<std::size_t>(kWidth)};
    args.eps = 1e-6F;
    return backend->rms_norm(args);
  };
  return KernelGroup{std::move(one)};
}

}  // namespace vernier::bench
