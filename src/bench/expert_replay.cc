#include "bench/expert_replay.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "bench/list.h"
#include "placement/experts.h"
#include "placement/routing_trace.h"

namespace vernier::bench {
namespace {

Result<RoutingTrace> read_trace(const std::filesystem::path& path) {
  if (path.empty()) {
    return fail_with_hint(ErrorCode::kInvalidArgument, "'vernier run MODEL --routing-trace FILE' records one",
                          "'bench experts' wants --trace FILE");
  }
  VN_ASSIGN(const auto file, MappedFile::open(path));
  VN_ASSIGN(const auto bytes, file->bytes({.offset = 0, .size = file->size()}));
  auto trace = parse_routing_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!trace) return tl::unexpected(with_context(std::move(trace).error(), file->name()));
  return trace;
}

}  // namespace

Result<std::vector<ExpertReplay>> replay_experts(const ExpertReplayOptions& options) {
  VN_ASSIGN(const RoutingTrace trace, read_trace(options.trace));
  const std::int64_t experts = std::int64_t{trace.num_layers} * trace.num_experts;
  std::vector<ExpertReplay> results;
  for (const std::string_view policy : split_list(options.policies)) {
    for (const std::string_view cache : split_list(options.caches)) {
      if (cache.empty()) return fail(ErrorCode::kInvalidArgument, "--caches has an empty entry");
      VN_ASSIGN(const std::int64_t slots, parse_expert_cache(cache, experts, 1));
      VN_ASSIGN(const ReplayResult result, replay_trace(trace, policy, slots));
      results.push_back({std::string(policy), result.slots, experts, result.uses, result.hits});
    }
  }
  return results;
}

}  // namespace vernier::bench
