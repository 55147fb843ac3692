#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/result.h"

namespace vernier {
namespace {

/// Folders of a cgroup path that are looked at.
constexpr int kMaxLevels = 64;

/// Calls `read(folder)` for the cgroup folder under `root` and all its parents.
template <class Read>
void for_each_level(const std::string& root, std::string path, Read read) {
  if (path.find("..") != std::string::npos) path.clear();  // lies outside of what is mounted here
  for (int level = 0; level < kMaxLevels; ++level) {
    read(root + path);
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.empty()) return;
    path.resize(slash);
  }
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text(16384, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string_view without_end(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

void for_each_cgroup_folder(const std::string& root, std::string_view controller,
                            const std::function<void(const std::string& folder, int version)>& read) {
  const std::optional<std::string> groups = read_small_file(root + "/proc/self/cgroup");
  if (!groups) return;
  // Lines are "0::/path" (version 2) or "3:cpu,cpuacct:/path" (version 1).
  std::string_view rest = *groups;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string path(line.substr(second + 1));
    const std::string mounted = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      for_each_level(mounted, path, [&](const std::string& folder) { read(folder, 2); });
    } else if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos) {
      // Mounted under the controller's name, under all of theirs, or both.
      for (const std::string& name : {std::string(controller), controllers}) {
        if (name.find('/') != std::string::npos) continue;
        for_each_level(fmt::format("{}/{}", mounted, name), path, [&](const std::string& folder) { read(folder, 1); });
      }
    }
  }
}

std::optional<std::uint64_t> cgroup_memory_limit(const std::string& root) {
  std::optional<std::uint64_t> limit;
  for_each_cgroup_folder(root, "memory", [&](const std::string& folder, int version) {
    const auto text = read_small_file(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!text) return;
    const std::string_view digits = without_end(*text);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return;  // "max"
    if (!limit || value < *limit) limit = value;
  });
  return limit;
}

}  // namespace vernier
