// How many threads this process may usefully run: its affinity mask, one CPU a physical core, within its cgroup's
// quota. Reads /proc and /sys only; nothing here pins or starts a thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vernier {

/// CPUs of the affinity mask with at most one of each physical core (hyper-threads share their core's vector units), in
/// rising order. Never empty.
[[nodiscard]] std::vector<int> usable_cpus();

/// The number of CPUs' worth of time that the process's cgroups (version 2 or 1, all levels) grant, or nothing where no
/// quota is set.
[[nodiscard]] std::optional<double> cgroup_cpu_quota();

/// min(usable_cpus, quota rounded down), at least 1: what num_threads = 0 means everywhere.
[[nodiscard]] int default_thread_count();

/// Bytes of the largest cache that CPU 0 can use, as sysfs says; 32 MiB where it says nothing.
[[nodiscard]] std::uint64_t largest_cache_bytes();

/// "0-3,8" as sysfs writes sets of CPUs -> {0, 1, 2, 3, 8}; nothing when malformed.
[[nodiscard]] std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// The content of cgroup 2's cpu.max ("200000 100000" -> 2.0); nothing for "max 100000" or malformed text.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

}  // namespace vernier
