// What the process's cgroups, version 2 or 1, say of its limits. A limit of any level holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace vernier {

/// Calls read(folder, version) for each folder that may hold a limit of `controller` ("cpu", "memory"), found under
/// `root`: those of the process's groups and of all groups that these are in.
void for_each_cgroup_folder(const std::string& root, std::string_view controller,
                            const std::function<void(const std::string& folder, int version)>& read);

/// Bytes of memory that the cgroups grant, the page cache of what the process reads included; nothing where they don't
/// bound it.
[[nodiscard]] std::optional<std::uint64_t> cgroup_memory_limit(const std::string& root = {});

/// The first bytes of a small pseudo-file, or nothing.
[[nodiscard]] std::optional<std::string> read_small_file(const std::string& path);

/// Text without blanks and line ends behind it.
[[nodiscard]] std::string_view without_end(std::string_view text);

}  // namespace vernier
