#include "cli/bench_output.h"

namespace vernier::cli {
namespace {

/// Four significant digits, as far as they lie before or shortly behind the point.
std::string number(double value) {
  return value >= 1000.0 ? fmt::format("{:.0f}", value)
         : value >= 100  ? fmt::format("{:.1f}", value)
         : value >= 1.0  ? fmt::format("{:.2f}", value)
                         : fmt::format("{:.3f}", value);
}

std::string percent(double share) { return share > 0.0 ? fmt::format("{:.0f} %", share * 100.0) : "-"; }

std::string known(double value) { return value > 0.0 ? number(value) : "-"; }

Json number_or_null(double value) { return value > 0.0 ? Json(value) : Json(); }

Json spread_json(const bench::Spread& spread) {
  JsonObject object;
  object.set("median", spread.median);
  object.set("min", spread.min);
  object.set("max", spread.max);
  return object;
}

Json limit_json(const Ceilings& limit) {
  JsonObject object;
  object.set("gb_s", number_or_null(limit.read_gb_s));
  object.set("gflop_s", number_or_null(limit.dot_gflop_s));
  return object;
}

}  // namespace

std::string model_heading(const ModelInfo& info) {
  return fmt::format(
      "{}: {}, {:.2f} B parameters, {:.2f} GiB of weights; device {}, precision {}\n"
      "{:<16} {:>7} {:>10} {:>10} {:>10} {:>8} {:>8} {:>15} {:>7}\n",
      info.name, info.architecture, static_cast<double>(info.parameters) * 1e-9,
      static_cast<double>(info.weight_bytes) / 1073741824.0, info.device, info.precision, "test", "depth", "tok/s",
      "min", "max", "GB/s", "GFLOP/s", "limits", "share");
}

std::string test_line(const bench::TestResult& result) {
  std::string line =
      fmt::format("{:<16} {:>7} {:>10} {:>10} {:>10} {:>8} {:>8} {:>15} {:>7}\n", result.test.name(), result.depth,
                  number(result.tok_s.median), number(result.tok_s.min), number(result.tok_s.max), number(result.gb_s),
                  number(result.gflop_s), known(result.limit.read_gb_s) + ", " + known(result.limit.dot_gflop_s),
                  percent(result.share_of_limit));
  if (result.slowest_window_tok_s > 0.0) {
    line += fmt::format("  any {} steps in a row: at least {} tok/s\n", bench::kWindowSteps,
                        number(result.slowest_window_tok_s));
  }
  const ExpertMoves& experts = result.experts;
  const auto uses = static_cast<double>(experts.found + experts.moved + experts.on_host);
  if (uses > 0.0) {
    line += fmt::format(
        "  experts: {:.1f} % in slots, {:.1f} % on the host, the rest moved: {} GB/s, the lane alone {}\n",
        static_cast<double>(experts.found) / uses * 100.0, static_cast<double>(experts.on_host) / uses * 100.0,
        number(result.moved_gb_s), known(experts.lane_bytes_per_second * 1e-9));
  }
  return line;
}

namespace {

JsonObject experts_json(const bench::TestResult& result) {
  JsonObject object;
  object.set("found", result.experts.found);
  object.set("moved", result.experts.moved);
  object.set("on_host", result.experts.on_host);
  object.set("moved_bytes", static_cast<std::int64_t>(result.experts.moved_bytes));
  object.set("moved_gb_s", result.moved_gb_s);
  object.set("lane_gb_s", number_or_null(result.experts.lane_bytes_per_second * 1e-9));
  return object;
}

}  // namespace

Json test_json(const bench::TestResult& result) {
  JsonObject object;
  object.set("test", result.test.name());
  object.set("depth", result.depth);
  object.set("batch", result.test.sequences);
  object.set("tok_s", spread_json(result.tok_s));
  if (result.slowest_window_tok_s > 0.0) object.set("slowest_100_steps_tok_s", result.slowest_window_tok_s);
  object.set("cpu_s_per_tok", result.cpu_s_per_tok);
  object.set("weight_bytes_per_token", result.weight_bytes_per_token);
  object.set("cache_bytes_per_token", result.cache_bytes_per_token);
  object.set("gb_s", result.gb_s);
  object.set("gflop_s", result.gflop_s);
  object.set("limit", limit_json(result.limit));
  object.set("share_of_limit", number_or_null(result.share_of_limit));
  if (result.kernels_a_step > 0) object.set("kernels_a_step", result.kernels_a_step);
  if (result.experts.found + result.experts.moved + result.experts.on_host > 0) {
    object.set("experts", experts_json(result));
  }
  return object;
}

std::string kernel_heading() {
  return fmt::format("{:<12} {:<12} {:<18} {:>6} {:>10} {:>10} {:>10} {:>8} {:>8} {:>15} {:>7}\n", "operation",
                     "format", "shape", "tokens", "us", "min", "max", "GB/s", "GFLOP/s", "limits", "share");
}

std::string kernel_line(const bench::KernelResult& result) {
  return fmt::format("{:<12} {:<12} {:<18} {:>6} {:>10} {:>10} {:>10} {:>8} {:>8} {:>15} {:>7}\n", result.op,
                     result.format, result.shape, result.tokens, number(result.seconds.median * 1e6),
                     number(result.seconds.min * 1e6), number(result.seconds.max * 1e6), number(result.gb_s),
                     number(result.gflop_s), known(result.limit.read_gb_s) + ", " + known(result.limit.dot_gflop_s),
                     percent(result.share_of_limit));
}

Json kernel_json(const bench::KernelResult& result) {
  JsonObject object;
  object.set("op", result.op);
  object.set("format", result.format);
  object.set("shape", result.shape);
  object.set("tokens", result.tokens);
  object.set("seconds", spread_json(result.seconds));
  object.set("bytes", result.bytes);
  object.set("flops", result.flops);
  object.set("gb_s", result.gb_s);
  object.set("gflop_s", result.gflop_s);
  object.set("limit", limit_json(result.limit));
  object.set("share_of_limit", number_or_null(result.share_of_limit));
  if (result.kernels > 0) object.set("kernels", result.kernels);
  return object;
}

std::string replay_heading() {
  return fmt::format("{:<8} {:>8} {:>8} {:>10} {:>10}\n", "policy", "slots", "of", "uses", "hits");
}

std::string replay_line(const bench::ExpertReplay& replay) {
  const double share = replay.uses > 0 ? static_cast<double>(replay.hits) / static_cast<double>(replay.uses) : 0.0;
  return fmt::format("{:<8} {:>8} {:>8} {:>10} {:>8.1f} %\n", replay.policy, replay.slots, replay.experts, replay.uses,
                     share * 100.0);
}

Json replay_json(const bench::ExpertReplay& replay) {
  JsonObject object;
  object.set("policy", replay.policy);
  object.set("slots", replay.slots);
  object.set("experts", replay.experts);
  object.set("uses", replay.uses);
  object.set("hits", replay.hits);
  return object;
}

}  // namespace vernier::cli
