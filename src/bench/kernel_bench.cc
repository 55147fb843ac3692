#include "bench/kernel_bench.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>

#include "backend/step_counter.h"
#include "base/cpu_topology.h"
#include "bench/kernel_cases.h"
#include "bench/list.h"

namespace vernier::bench {
namespace {

constexpr double kRoundSeconds = 0.04;  // of calls that are timed together
constexpr std::int64_t kMaxCalls = 100'000;
constexpr std::uint64_t kDeviceWorkingSet = 400U << 20U;  // more than six times what a GPU's second-level cache holds
// Steps of many calls: long enough for the launch of a graph to be small beside them.
constexpr double kStepSeconds = 0.003;
constexpr std::int64_t kLeastOfStep = 4;
constexpr std::int64_t kMostOfStep = 1024;

Result<std::int64_t> parse_count(std::string_view flag, std::string_view text, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > high) {
    return fail(ErrorCode::kInvalidArgument, "{}: '{}' is no number in 1..{}", flag, escape(text), high);
  }
  return value;
}

Result<std::vector<std::int32_t>> parse_rows(const std::string& text) {
  std::vector<std::int32_t> rows;
  if (text.empty()) return rows;
  for (const std::string_view part : split_list(text)) {
    VN_ASSIGN(const std::int64_t value, parse_count("--rows", part, 65536));
    rows.push_back(static_cast<std::int32_t>(value));
  }
  return rows;
}

Result<std::vector<LinearShape>> parse_shapes(const std::string& text) {
  if (text.empty()) return std::vector<LinearShape>{{4096, 4096}, {14336, 4096}};
  std::vector<LinearShape> shapes;
  for (const std::string_view part : split_list(text)) {
    const std::size_t times = std::min(part.find('x'), part.size());
    VN_ASSIGN(const std::int64_t rows, parse_count("--shapes", part.substr(0, times), 1 << 20));
    VN_ASSIGN(const std::int64_t cols, parse_count("--shapes", part.substr(std::min(times + 1, part.size())), 1 << 20));
    shapes.push_back({rows, cols});
  }
  return shapes;
}

struct Wanted {
  bool linear = false;
  bool attention = false;
  bool delta_net = false;
  bool norm = false;
  std::vector<ExpertOp> experts;
};

Result<Wanted> parse_ops(const std::string& text) {
  if (text.empty()) return Wanted{true, true, true, true, {ExpertOp::kExperts, ExpertOp::kMixture, ExpertOp::kRouter}};
  Wanted wanted;
  const std::pair<std::string_view, bool Wanted::*> names[] = {{"linear", &Wanted::linear},
                                                               {"attention", &Wanted::attention},
                                                               {"delta-net", &Wanted::delta_net},
                                                               {"norm", &Wanted::norm}};
  constexpr std::pair<std::string_view, ExpertOp> kExpertNames[] = {
      {"experts", ExpertOp::kExperts}, {"mixture", ExpertOp::kMixture}, {"router", ExpertOp::kRouter}};
  for (const std::string_view part : split_list(text)) {
    const auto is_named = [&](const auto& name) { return name.first == part; };
    const auto found = std::find_if(std::begin(names), std::end(names), is_named);
    const auto* const of_experts = std::find_if(std::begin(kExpertNames), std::end(kExpertNames), is_named);
    if (found != std::end(names)) {
      wanted.*(found->second) = true;
    } else if (of_experts != std::end(kExpertNames)) {
      wanted.experts.push_back(of_experts->second);
    } else {
      return fail_with_hint(ErrorCode::kInvalidArgument,
                            "known: linear, attention, delta-net, experts, mixture, router, norm",
                            "--ops: unknown operation '{}'", escape(part));
    }
  }
  return wanted;
}

std::vector<std::string> parse_cases(const std::string& text) {
  std::vector<std::string> cases;
  if (text.empty()) return cases;
  for (const std::string_view part : split_list(text)) cases.emplace_back(part);
  return cases;
}

/// Measures groups of cases: in each round the ceilings, then every case once.
class Runner {
 public:
  using Report = std::function<Status(const KernelResult&)>;
  Runner(Backend& backend, const KernelBenchOptions& options, const Report& report)
      : backend_(backend), options_(options), report_(report) {
    threads_ = options.threads > 0 ? options.threads : default_thread_count();
  }

  [[nodiscard]] bool has_run() const { return has_run_; }

  Status run(const KernelGroup& cases) {
    KernelGroup group;
    for (const KernelCase& one : cases) {
      VN_ASSIGN(const std::int64_t calls, calls_a_step(one));
      group.push_back(in_steps(backend_, one, calls));
    }
    return measure(group);
  }

 private:
  Status measure(const KernelGroup& group) {
    has_run_ = has_run_ || !group.empty();
    std::vector<std::vector<double>> seconds(group.size());
    std::vector<std::vector<double>> shares(group.size());
    std::vector<double> reads, dots;
    std::vector<std::int64_t> calls, kernels;
    for (const KernelCase& one : group) {
      VN_ASSIGN(const std::int64_t count, calls_a_round(one));
      calls.push_back(count);
      kernels.push_back(launches_of_step(backend_) / one.steps);
    }
    std::vector<std::int64_t> next(group.size(), 0);
    for (std::int32_t round = 0; round < options_.repeat; ++round) {
      VN_ASSIGN(const Ceilings ceilings, backend_.measure_ceilings(options_.clock));
      reads.push_back(ceilings.read_gb_s);
      dots.push_back(ceilings.dot_gflop_s);
      for (std::size_t i = 0; i < group.size(); ++i) {
        // What has been recorded may have been dropped for other cases: not in what is timed.
        if (group[i].steps > 1) VN_TRY(time_calls(group[i], next[i], 2));
        VN_ASSIGN(const double taken, time_calls(group[i], next[i], calls[i]));
        next[i] += calls[i];
        seconds[i].push_back(taken);
        shares[i].push_back(floor_seconds(group[i], ceilings) / taken);
      }
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const KernelCase& one = group[i];
      KernelResult result{one.op, one.format, one.shape, one.tokens, spread_of(seconds[i]), one.bytes, one.flops, {},
                          {},     {},         {},        kernels[i]};
      result.gb_s = one.bytes / result.seconds.median * 1e-9;
      result.gflop_s = one.flops / result.seconds.median * 1e-9;
      result.limit = {spread_of(reads).median, spread_of(dots).median};
      result.share_of_limit = spread_of(shares[i]).median;
      VN_TRY(report_(result));
    }
    return {};
  }

  static double floor_seconds(const KernelCase& one, const Ceilings& ceilings) {
    if (ceilings.read_gb_s <= 0.0 || ceilings.dot_gflop_s <= 0.0) return 0.0;
    return std::max(one.bytes / ceilings.read_gb_s, one.flops / ceilings.dot_gflop_s) * 1e-9;
  }

  [[nodiscard]] double now() const {
    if (options_.clock == BenchClock::kCpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / threads_;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// On a host one. Elsewhere all operands in turn, as often as a step has time for: else its end and the next one's
  /// beginning would share some.
  Result<std::int64_t> calls_a_step(const KernelCase& one) {
    if (backend_.is_host()) return 1;
    const KernelCase probe = in_steps(backend_, one, kLeastOfStep);
    VN_TRY(time_calls(probe, 0, 2));  // by calls, and while it is recorded
    VN_ASSIGN(const double each, time_calls(probe, 2, 1));
    const auto fitting = std::clamp(static_cast<std::int64_t>(kStepSeconds / each), kLeastOfStep, kMostOfStep);
    const std::int64_t copies = std::min(one.copies, fitting);
    return fitting / copies * copies;
  }

  /// Seconds of one operation in `count` calls, of which `first` is the first one's number.
  Result<double> time_calls(const KernelCase& one, std::int64_t first, std::int64_t count) {
    const double start = now();
    for (std::int64_t i = 0; i < count; ++i) VN_TRY(one.run(first + i));
    VN_TRY(backend_.synchronize());
    return (now() - start) / static_cast<double>(count * one.steps);
  }

  /// Warms up, and finds how many calls fill a round.
  Result<std::int64_t> calls_a_round(const KernelCase& one) {
    VN_TRY(time_calls(one, 0, one.steps > 1 ? 3 : 1));  // by calls, while it is recorded, and as recorded
    std::int64_t count = 1;
    while (true) {
      const double each = time_calls(one, 0, count).value_or(kRoundSeconds);
      const double taken = std::max(each * static_cast<double>(one.steps), 1e-9);
      if (taken * static_cast<double>(count) >= kRoundSeconds / 4.0 || count >= kMaxCalls) {
        return std::clamp<std::int64_t>(static_cast<std::int64_t>(kRoundSeconds / taken), 1, kMaxCalls);
      }
      count *= 4;
    }
  }

  Backend& backend_;
  const KernelBenchOptions& options_;
  const Report& report_;
  std::int32_t threads_ = 1;
  bool has_run_ = false;
};

Result<std::unique_ptr<Backend>> open_backend(const KernelBenchOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return fail(ErrorCode::kInvalidArgument, "threads must be in 0..1024, found {}", options.threads);
  }
  BackendOptions backend;
  backend.precision = options.precision == "f32" ? Precision::kF32 : Precision::kBf16;
  backend.num_threads = options.threads;
  backend.cpu_isa = options.cpu_isa;
  return create_backend(options.device, backend);
}

/// Experts of published models, in formats whose blocks fit their widths.
Status run_experts(Runner& runner, const CaseContext& context, const std::vector<StoredFormat>& formats,
                   std::vector<ExpertOp> ops) {
  const ExpertShape shapes[] = {{128, 8, 2048, 768}, {context.backend->is_host() ? 32 : 128, 4, 2880, 2880}};
  // Routers have a format of their own, so they are the same whatever the experts'.
  const auto router = std::remove(ops.begin(), ops.end(), ExpertOp::kRouter);
  const bool has_router = router != ops.end();
  ops.erase(router, ops.end());
  for (const ExpertShape& shape : shapes) {
    if (!context.wants(shape.name())) continue;
    if (has_router) {
      VN_ASSIGN(const KernelGroup cases, expert_cases(context, formats.front(), shape, {ExpertOp::kRouter}));
      VN_TRY(runner.run(cases));
    }
    for (const StoredFormat& format : formats) {
      if (ops.empty()) break;
      auto group = expert_cases(context, format, shape, ops);
      if (!group && group.error().code == ErrorCode::kInvalidArgument) continue;
      VN_ASSIGN(const KernelGroup cases, std::move(group));
      VN_TRY(runner.run(cases));
    }
  }
  return {};
}

Status run_linears(Runner& runner, const CaseContext& context, const std::vector<StoredFormat>& formats,
                   const std::vector<LinearShape>& shapes, const std::vector<Chain>& chains) {
  std::vector<std::int32_t> rows = context.tokens;
  if (rows.empty()) rows = {1, 2, 4, 8, 16, 64, 512};
  for (const StoredFormat& format : formats) {
    VN_TRY(context.backend->supports(format.format));
    for (const LinearShape& shape : shapes) {
      auto group = chains.empty() ? linear_cases(context, format, shape, rows)
                                  : chain_cases(context, format, shape, rows, chains);
      VN_ASSIGN(const KernelGroup cases, std::move(group));
      VN_TRY(runner.run(cases));
    }
  }
  return {};
}

}  // namespace

Status run_kernel_bench(const KernelBenchOptions& options, const std::function<Status(const KernelResult&)>& report) {
  VN_ASSIGN(const std::vector<StoredFormat> formats, parse_formats(options.formats));
  VN_ASSIGN(const std::vector<LinearShape> shapes, parse_shapes(options.shapes));
  VN_ASSIGN(const std::vector<Chain> chains, parse_chains(options.chain));
  VN_ASSIGN(const Wanted wanted, parse_ops(options.ops));
  CaseContext context;
  VN_ASSIGN(context.tokens, parse_rows(options.rows));
  context.cases = parse_cases(options.cases);
  if (!chains.empty() && !wanted.linear) {
    return fail(ErrorCode::kInvalidArgument, "--chain is of linears, which --ops {} leaves out", escape(options.ops));
  }
  if (options.working_set_mib < 0 || options.working_set_mib > 1 << 20) {
    return fail(ErrorCode::kInvalidArgument, "--working-set must be in 0..{} MiB, found {}", 1 << 20,
                options.working_set_mib);
  }
  VN_ASSIGN(const auto backend, open_backend(options));
  context.backend = backend.get();
  context.threads = options.threads;
  const std::uint64_t usual = backend->is_host() ? 4 * largest_cache_bytes() : kDeviceWorkingSet;
  context.working_set =
      options.working_set_mib > 0 ? static_cast<std::uint64_t>(options.working_set_mib) << 20U : usual;
  Runner runner(*backend, options, report);
  if (wanted.linear) VN_TRY(run_linears(runner, context, formats, shapes, chains));
  if (wanted.attention) {
    VN_ASSIGN(const KernelGroup group,
              attention_cases(context, options.precision == "f32" ? DType::kF32 : DType::kBF16));
    VN_TRY(runner.run(group));
  }
  if (wanted.delta_net) {
    VN_ASSIGN(const KernelGroup group, delta_net_cases(context));
    VN_TRY(runner.run(group));
  }
  if (!wanted.experts.empty()) VN_TRY(run_experts(runner, context, formats, wanted.experts));
  if (wanted.norm) {
    VN_ASSIGN(const KernelGroup group, norm_cases(context));
    VN_TRY(runner.run(group));
  }
  if (!runner.has_run()) return fail(ErrorCode::kInvalidArgument, "--cases {} names no case", escape(options.cases));
  return {};
}

}  // namespace vernier::bench
