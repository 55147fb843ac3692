// `vernier bench`: speed of a model, or of single operations, next to what the machine could do at best.
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "bench/kernel_bench.h"
#include "bench/model_bench.h"
#include "bench/shape_list.h"
#include "cli/bench_output.h"
#include "cli/model_flags.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  std::string tests = "pp512,tg128";
  std::string depth = "0";
  std::int32_t repeat = 5;
  bool jsonl = false;
  bench::SyntheticOptions synthetic;
  bench::KernelBenchOptions kernels;
  bench::ExpertReplayOptions experts;
  std::string clock = "wall";

  [[nodiscard]] BenchClock bench_clock() const { return clock == "cpu" ? BenchClock::kCpu : BenchClock::kWall; }
};

int list_shapes() {
  const auto shapes = bench::shape_list();
  if (!shapes) return report(shapes.error());
  for (const bench::Shape& shape : *shapes) {
    const bool mixed = shape.linear != shape.experts;
    print(fmt::format("{:<16} {:<18} {}\n", shape.name, mixed ? shape.experts + ", " + shape.linear : shape.linear,
                      shape.about));
  }
  return kExitDone;
}

Status check_flags(const BenchFlags& flags) {
  if (flags.repeat < 1 || flags.repeat > 1000) {
    return fail(ErrorCode::kInvalidArgument, "--repeat must be in 1..1000, found {}", flags.repeat);
  }
  if (flags.synthetic.shape.empty()) {
    const std::string_view unused = flags.synthetic.layers != 0          ? "--layers"
                                    : !flags.synthetic.container.empty() ? "--container"
                                    : !flags.synthetic.file.empty()      ? "--weights-file"
                                                                         : "";
    if (!unused.empty()) return fail(ErrorCode::kInvalidArgument, "{} goes with --synthetic", unused);
    if (!flags.synthetic.format.empty()) {
      return fail(ErrorCode::kInvalidArgument, "--format goes with --synthetic (and --formats with 'bench kernels')");
    }
  } else if (!flags.model.model.empty()) {
    return fail(ErrorCode::kInvalidArgument, "give a MODEL or --synthetic, not both");
  }
  return {};
}

Status bench_model(const BenchFlags& flags) {
  bench::ModelBenchOptions options;
  options.engine = flags.model.engine;
  options.engine.model = flags.model.model;
  options.engine.allowed_roots.assign(flags.model.allow_root.begin(), flags.model.allow_root.end());
  options.repeat = flags.repeat;
  options.clock = flags.bench_clock();
  VN_ASSIGN(options.tests, bench::parse_tests(flags.tests));
  VN_ASSIGN(options.depths, bench::parse_depths(flags.depth));
  if (!flags.synthetic.shape.empty()) options.synthetic = flags.synthetic;
  VN_ASSIGN(bench::ModelBench bench, bench::ModelBench::open(options));
  if (!flags.model.quiet) {
    for (const std::string& warning : bench.info().warnings) warn(warning);
  }
  if (!flags.jsonl) print(model_heading(bench.info()));
  for (const std::int32_t depth : options.depths) {
    for (const bench::Test& test : options.tests) {
      VN_ASSIGN(const bench::TestResult result, bench.run(test, depth, options.repeat));
      print(flags.jsonl ? to_json_text(test_json(result)) + "\n" : test_line(result));
      if (std::fflush(stdout) != 0) return fail(ErrorCode::kIo, "cannot write to standard output");
    }
  }
  return {};
}

Status bench_kernels(const BenchFlags& flags) {
  bench::KernelBenchOptions options = flags.kernels;
  options.device = flags.model.engine.device;
  options.cpu_isa = flags.model.engine.cpu_isa;
  options.threads = flags.model.engine.threads;
  options.precision = flags.model.engine.precision;
  options.repeat = flags.repeat;
  options.clock = flags.bench_clock();
  bool is_first = true;
  return bench::run_kernel_bench(options, [&](const bench::KernelResult& result) -> Status {
    if (is_first && !flags.jsonl) print(kernel_heading());
    is_first = false;
    print(flags.jsonl ? to_json_text(kernel_json(result)) + "\n" : kernel_line(result));
    if (std::fflush(stdout) != 0) return fail(ErrorCode::kIo, "cannot write to standard output");
    return {};
  });
}

Status bench_experts(const BenchFlags& flags) {
  VN_ASSIGN(const auto replays, bench::replay_experts(flags.experts));
  if (!flags.jsonl) print(replay_heading());
  for (const bench::ExpertReplay& replay : replays) {
    print(flags.jsonl ? to_json_text(replay_json(replay)) + "\n" : replay_line(replay));
  }
  return {};
}

int bench_verb(const BenchFlags& flags) {
  if (flags.synthetic.shape == "help") return list_shapes();
  Status status = check_flags(flags);
  if (status && flags.model.model == "kernels") {
    status = bench_kernels(flags);
  } else if (status && flags.model.model == "experts") {
    status = bench_experts(flags);
  } else if (status) {
    status = bench_model(flags);
  }
  return status ? kExitDone : report(status.error());
}

}  // namespace

VerbBody declare_bench(CLI::App& app) {
  const auto flags = std::make_shared<BenchFlags>();
  add_model_flags(app, flags->model);
  app.get_option("model")->description("as elsewhere; 'kernels': single operations; 'experts': routing against caches");
  app.add_option(
         "--tests", flags->tests,
         "pp512: a prompt of 512 tokens; tg128: 128 tokens generated; tg64x16: in 16 sequences at once; pp512+tg128")
      ->option_text("LIST")
      ->capture_default_str();
  app.add_option("--depth", flags->depth, "tokens already in each sequence's cache")
      ->option_text("LIST")
      ->capture_default_str();
  app.add_option("--repeat", flags->repeat, "repetitions of each test")->capture_default_str();
  app.add_option("--clock", flags->clock,
                 "wall, or cpu: rates and limits by CPU time, on a machine that others use too")
      ->check(CLI::IsMember({"wall", "cpu"}))
      ->capture_default_str();
  app.add_flag("--jsonl", flags->jsonl, "print a JSON object a line");
  app.add_option("--synthetic", flags->synthetic.shape, "random weights in the shape of this model; 'help' lists them")
      ->option_text("NAME");
  app.add_option("--layers", flags->synthetic.layers, "only so many layers of the shape");
  app.add_option("--format", flags->synthetic.format,
                 "format of the synthetic weights (default: as the model was published)")
      ->option_text("NAME");
  app.add_option("--container", flags->synthetic.container, "gguf or safetensors: layout of the synthetic weights")
      ->check(CLI::IsMember({"gguf", "safetensors"}));
  app.add_option("--weights-file", flags->synthetic.file,
                 "keep the synthetic weights in this file, and take those that an earlier run left there")
      ->option_text("FILE");
  app.add_option("--formats", flags->kernels.formats, "kernels: weight formats, 'all', or NAME:gguf for GGUF's layout")
      ->option_text("LIST");
  app.add_option("--ops", flags->kernels.ops, "kernels: linear, attention, delta-net, experts, mixture, router, norm")
      ->option_text("LIST");
  app.add_option("--rows", flags->kernels.rows,
                 "kernels: tokens of linears (default 1,2,4,8,16,64,512), routers and experts")
      ->option_text("LIST");
  app.add_option("--shapes", flags->kernels.shapes, "kernels: linears as OUTxIN (default 4096x4096,14336x4096)")
      ->option_text("LIST");
  app.add_option("--cases", flags->kernels.cases,
                 "kernels: only these shapes of attention, delta nets and experts, as results name them")
      ->option_text("LIST");
  app.add_option("--chain", flags->kernels.chain,
                 "kernels: how linears of a step follow each other: apart, overlap, norm")
      ->option_text("LIST");
  app.add_option("--working-set", flags->kernels.working_set_mib,
                 "kernels: MiB of operands to rotate through (default: four times the largest cache)");
  app.add_option("--trace", flags->experts.trace, "experts: routing recorded by --routing-trace")->option_text("FILE");
  app.add_option("--caches", flags->experts.caches, "experts: cache sizes, in experts or shares of them")
      ->option_text("LIST")
      ->capture_default_str();
  app.add_option("--policies", flags->experts.policies, "experts: what leaves a full cache")
      ->option_text("LIST")
      ->capture_default_str();
  return [flags] { return bench_verb(*flags); };
}

}  // namespace vernier::cli
