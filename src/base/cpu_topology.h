// How many threads this process may usefully run: its affinity mask, one CPU a physical core, within its cgroup's
// quota; and where on a machine of several memory nodes they had better run. What /proc and /sys say is taken for a
// hint: files that are missing or make no sense count as absent.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vernier {

// `root` stands before the paths of /proc and /sys; tests put a made-up tree there.

/// CPUs of the affinity mask with at most one of each physical core (hyper-threads share their core's vector units), in
/// rising order. Never empty.
[[nodiscard]] std::vector<int> usable_cpus();

/// The first of `cpus` of each physical core, in their order.
[[nodiscard]] std::vector<int> one_cpu_per_core(std::span<const int> cpus, const std::string& root = {});

/// The number of CPUs' worth of time that the process's cgroups (version 2 or 1, all levels) grant, or nothing where no
/// quota is set.
[[nodiscard]] std::optional<double> cgroup_cpu_quota(const std::string& root = {});

/// The CPUs of each memory node that has some.
[[nodiscard]] std::vector<std::vector<int>> memory_nodes(const std::string& root = {});

/// min(usable_cpus, quota rounded down), at least 1: what num_threads = 0 means everywhere.
[[nodiscard]] int default_thread_count();

/// Bytes of the largest cache that CPU 0 can use, as sysfs says; 32 MiB where it says nothing.
[[nodiscard]] std::uint64_t largest_cache_bytes();

/// For each of `num_threads` threads the CPUs of the memory node that it had better stay on, neighbours together; empty
/// where binding gains nothing: one node, or fewer threads than usable CPUs, which the system may want to spread.
[[nodiscard]] std::vector<std::vector<int>> thread_places(int num_threads);
/// The same for given CPUs and nodes.
[[nodiscard]] std::vector<std::vector<int>> thread_places(int num_threads, std::span<const int> cpus,
                                                          std::span<const std::vector<int>> nodes);

/// Binds a thread to some CPUs, all of which the process may use. Where the system refuses, nothing changes.
void keep_on_cpus(pthread_t thread, std::span<const int> cpus);

/// "0-3,8" as sysfs writes sets of CPUs -> {0, 1, 2, 3, 8}; nothing when malformed.
[[nodiscard]] std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// The content of cgroup 2's cpu.max ("200000 100000" -> 2.0); nothing for "max 100000" or malformed text.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

}  // namespace vernier
