#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/cgroup.h"
#include "base/result.h"

namespace vernier {
namespace {

constexpr int kMaxCpus = 4096;
constexpr int kMaxNodes = 1024;

template <class T>
std::optional<T> parse_integer(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<int> affinity_mask() {
  std::vector<int> cpus;
  cpu_set_t* mask = CPU_ALLOC(kMaxCpus);
  if (mask == nullptr) return cpus;
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(size, mask);
  if (sched_getaffinity(0, size, mask) == 0) {
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask)) cpus.push_back(cpu);
    }
  }
  CPU_FREE(mask);
  return cpus;
}

/// The lowest CPU of the physical core that `cpu` belongs to; `cpu` itself where sysfs doesn't say.
int core_of(int cpu, const std::string& root) {
  for (const std::string_view name : {"core_cpus_list", "thread_siblings_list"}) {  // the newer name, the older one
    const auto text = read_small_file(fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/{}", root, cpu, name));
    if (!text) continue;
    const auto siblings = parse_cpu_list(without_end(*text));
    const bool plausible = siblings && std::find(siblings->begin(), siblings->end(), cpu) != siblings->end();
    return plausible ? *std::min_element(siblings->begin(), siblings->end()) : cpu;
  }
  return cpu;
}

void keep_smaller(std::optional<double>& quota, std::optional<double> other) {
  if (other && (!quota || *other < *quota)) quota = other;
}

std::optional<double> version_1_quota(const std::string& folder) {
  const auto quota = read_small_file(folder + "/cpu.cfs_quota_us");
  const auto period = read_small_file(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return parse_cpu_max(fmt::format("{} {}", without_end(*quota), without_end(*period)));
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = part.find('-');
    const auto first = parse_integer<int>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_integer<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  text = without_end(text);
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = parse_integer<long long>(text.substr(0, space));
  const auto period = parse_integer<long long>(text.substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::vector<int> usable_cpus() {
  const std::vector<int> mask = affinity_mask();
  std::vector<int> cpus = one_cpu_per_core(mask);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::vector<int> one_cpu_per_core(std::span<const int> cpus, const std::string& root) {
  std::vector<int> result;
  std::set<int> cores;
  for (const int cpu : cpus) {
    if (cores.insert(core_of(cpu, root)).second) result.push_back(cpu);
  }
  return result;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> quota;
  for_each_cgroup_folder(root, "cpu", [&](const std::string& folder, int version) {
    if (version == 1) return keep_smaller(quota, version_1_quota(folder));
    if (const auto text = read_small_file(folder + "/cpu.max")) keep_smaller(quota, parse_cpu_max(*text));
  });
  return quota;
}

std::vector<std::vector<int>> memory_nodes(const std::string& root) {
  std::vector<std::vector<int>> nodes;
  const auto online = read_small_file(root + "/sys/devices/system/node/online");
  const auto numbers = online ? parse_cpu_list(without_end(*online)) : std::nullopt;
  if (!numbers) return nodes;
  for (const int node : *numbers) {
    if (node >= kMaxNodes) break;
    const auto text = read_small_file(fmt::format("{}/sys/devices/system/node/node{}/cpulist", root, node));
    auto cpus = text ? parse_cpu_list(without_end(*text)) : std::nullopt;
    if (cpus && !cpus->empty()) nodes.push_back(std::move(*cpus));
  }
  return nodes;
}

std::vector<std::vector<int>> thread_places(int num_threads) {
  return thread_places(num_threads, usable_cpus(), memory_nodes());
}

std::vector<std::vector<int>> thread_places(int num_threads, std::span<const int> cpus,
                                            std::span<const std::vector<int>> nodes) {
  std::vector<std::vector<int>> places;
  if (nodes.size() < 2 || num_threads != static_cast<int>(cpus.size())) return places;
  std::size_t used_nodes = 0;
  for (const std::vector<int>& node : nodes) {
    std::vector<int> own;
    for (const int cpu : cpus) {
      if (std::find(node.begin(), node.end(), cpu) != node.end()) own.push_back(cpu);
    }
    used_nodes += own.empty() ? 0 : 1;
    places.insert(places.end(), own.size(), own);
  }
  // Nodes that overlap or lack CPUs make no sense.
  if (used_nodes < 2 || places.size() != cpus.size()) return {};
  return places;
}

void keep_on_cpus(pthread_t thread, std::span<const int> cpus) {
  cpu_set_t* mask = CPU_ALLOC(kMaxCpus);
  if (mask == nullptr) return;
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(size, mask);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < kMaxCpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, mask);
  }
  (void)pthread_setaffinity_np(thread, size, mask);
  CPU_FREE(mask);
}

int default_thread_count() {
  int count = static_cast<int>(usable_cpus().size());
  if (const auto quota = cgroup_cpu_quota()) count = std::min(count, static_cast<int>(*quota));
  return std::max(count, 1);
}

std::uint64_t largest_cache_bytes() {
  std::uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const auto text = read_small_file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    if (!text) break;
    std::string_view size = without_end(*text);
    if (!size.ends_with('K')) continue;  // the kernel writes no other unit
    size.remove_suffix(1);
    largest = std::max(largest, parse_integer<std::uint64_t>(size).value_or(0) << 10U);
  }
  return largest > 0 ? largest : 32ULL << 20U;
}

}  // namespace vernier
