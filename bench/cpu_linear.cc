// Measures the CPU backend's linear against what the machine can do at most, both by turns in one process:
//   cpu_linear FORMAT LAYOUT ROWS COLS TOKENS [key=value...]
//     isa=avx2  threads=1  precision=f32  mib=512 (weights in all, several copies)  rounds=7  clock=wall
// LAYOUT: plain, interleaved or separate. Prints the rate of reading weights as a share of a plain read loop over the
// same memory (RAW), and that of arithmetic as a share of VDPBF16PS (DP) and of the instruction set's own
// multiply-adds.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu_backend.h"
#include "format/decode.h"
#include "format/format_list.h"
#include "support/random_weight.h"

namespace vernier {
namespace {

struct Options {
  test::WeightSpec spec;
  std::int64_t tokens = 1;
  std::map<std::string, std::string> values;
  [[nodiscard]] std::string get(const std::string& key, const std::string& otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
};

/// Memory in huge pages where the system has them; never freed.
std::span<std::byte> huge_memory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), bytes};
}

/// Copies of a weight one behind the other in `memory`.
std::vector<Weight> copies_of(const Weight& weight, std::span<std::byte> memory) {
  const auto code_bytes = static_cast<std::size_t>(weight.rows * weight.row_stride);
  const std::size_t scale_bytes = static_cast<std::size_t>(storage_bytes(weight)) - code_bytes;
  const std::size_t each = (code_bytes + scale_bytes + 127) / 64 * 64;
  std::vector<Weight> copies;
  for (std::size_t at = 0; at + each <= memory.size(); at += each) {
    Weight copy = weight;
    std::memcpy(memory.data() + at, weight.codes, code_bytes);
    copy.codes = memory.data() + at;
    if (scale_bytes > 0) {
      std::memcpy(memory.data() + at + code_bytes, weight.scales, scale_bytes);
      copy.scales = memory.data() + at + code_bytes;
    }
    copies.push_back(copy);
  }
  return copies;
}

/// Median, with the least and the largest.
std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:8.2f} ({:.2f} .. {:.2f})", values[values.size() / 2], values.front(), values.back());
}

struct Rates {
  std::vector<double> gb_s;
  std::vector<double> raw_gb_s;
  std::vector<double> raw_share;
  std::vector<double> gflop_s;
  std::vector<double> dp_share;
  std::vector<double> isa_share;
};

int run(const Options& options) {
  const std::string isa(options.get("isa", ""));
  const auto kernels = choose_kernels(isa);
  if (!kernels) return fmt::print(stderr, "{}\n", kernels.error().message), 1;
  BackendOptions backend_options;
  backend_options.cpu_isa = isa;
  backend_options.num_threads = std::stoi(options.get("threads", "0"));
  backend_options.precision = options.get("precision", "bf16") == "f32" ? Precision::kF32 : Precision::kBf16;
  CpuBackend backend(backend_options, **kernels);
  ThreadPool pool(backend_options.num_threads);
  const BenchClock clock = options.get("clock", "cpu") == "wall" ? BenchClock::kWall : BenchClock::kCpu;

  const Weight weight = test::random_weight(options.spec);
  const auto bytes = static_cast<double>(storage_bytes(weight));
  const std::size_t wanted = static_cast<std::size_t>(std::stoi(options.get("mib", "512"))) << 20;
  const std::span<std::byte> memory = huge_memory(std::max(wanted, static_cast<std::size_t>(bytes) + 128));
  if (memory.empty()) return fmt::print(stderr, "no memory\n"), 1;
  const std::vector<Weight> copies = copies_of(weight, memory);

  test::Random random(5);
  std::vector<float> x = random.floats(options.tokens * weight.cols);
  std::vector<float> y(static_cast<std::size_t>(options.tokens * weight.rows));
  const double operations = 2.0 * static_cast<double>(weight.rows * weight.cols * options.tokens);
  Rates rates;
  for (int round = 0; round < std::stoi(options.get("rounds", "7")); ++round) {
    const double start = bench_seconds(clock, pool.size());
    for (const Weight& copy : copies) {
      const LinearOutput output = {
          .weight = &copy, .bias = {}, .y = {y.data(), options.tokens, weight.rows, weight.rows}, .accumulate = false};
      const Status status = backend.linear({{x.data(), options.tokens, weight.cols, weight.cols}, {&output, 1}});
      if (!status) return fmt::print(stderr, "{}\n", status.error().message), 1;
    }
    const double seconds = (bench_seconds(clock, pool.size()) - start) / static_cast<double>(copies.size());
    rates.gb_s.push_back(bytes * 1e-9 / seconds);
    rates.raw_gb_s.push_back(read_gb_s(pool, memory, clock));
    rates.raw_share.push_back(rates.gb_s.back() / rates.raw_gb_s.back());
    rates.gflop_s.push_back(operations * 1e-9 / seconds);
    rates.dp_share.push_back(rates.gflop_s.back() / dot_gflop_s(pool, clock));
    rates.isa_share.push_back(rates.gflop_s.back() / multiply_add_gflop_s(pool, **kernels, clock));
  }
  fmt::print("{} {} x {}, {} tokens, {}, {} threads, {} copies\n", format_info(weight.format).name, weight.rows,
             weight.cols, options.tokens, (*kernels)->name, pool.size(), copies.size());
  fmt::print("  GB/s     {}   RAW {}   share {}\n", spread(rates.gb_s), spread(rates.raw_gb_s),
             spread(rates.raw_share));
  fmt::print("  GFLOP/s  {}   of DP {}   of its own multiply-adds {}\n", spread(rates.gflop_s), spread(rates.dp_share),
             spread(rates.isa_share));
  return 0;
}

}  // namespace
}  // namespace vernier

int main(int argc, char** argv) {
  using namespace vernier;
  const std::vector<std::string> words(argv + 1, argv + argc);
  Options options;
  bool found = false;
  if (words.size() >= 5) {
    for (std::size_t i = 0; i < kFormats.size(); ++i) {
      if (kFormats[i].name != words[0]) continue;
      options.spec.format = static_cast<FormatId>(i);
      found = true;
    }
    options.spec.layout = words[1] == "plain"         ? WeightLayout::kPlain
                          : words[1] == "interleaved" ? WeightLayout::kInterleaved
                                                      : WeightLayout::kSeparate;
    options.spec.rows = std::stoll(words[2]);
    options.spec.cols = std::stoll(words[3]);
    options.tokens = std::stoll(words[4]);
  }
  if (!found || !format_info(options.spec.format).row_bytes(options.spec.layout, options.spec.cols)) {
    fmt::print(stderr, "usage: cpu_linear FORMAT LAYOUT ROWS COLS TOKENS [key=value...]; see the top of its source\n");
    return 2;
  }
  for (std::size_t i = 5; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals != std::string::npos) options.values[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  return run(options);
}
