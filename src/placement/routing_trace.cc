#include "placement/routing_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "placement/slot_cache.h"

namespace vernier {
namespace {

constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostExperts = 65536;

/// A member in [0, most), or -1.
std::int64_t small_integer(const Json* value, std::int64_t most) {
  if (value == nullptr || !value->is_integer() || value->is_big_unsigned()) return -1;
  return value->as_int64() >= 0 && value->as_int64() < most ? value->as_int64() : -1;
}

Status read_header(const Json& line, RoutingTrace& trace) {
  const Json* version = line.find("vernier_routing_trace");
  const std::int64_t top_k = small_integer(line.find("top_k"), kMostExperts);
  if (small_integer(version, 2) != 1 || top_k < 1) {
    return fail(ErrorCode::kCorrupt, R"(expected {{"vernier_routing_trace":1,"top_k":K}})");
  }
  trace.top_k = static_cast<std::int32_t>(top_k);
  return {};
}

Status read_call(const Json& line, RoutingTrace& trace) {
  RoutingTrace::Call call;
  const std::int64_t layer = small_integer(line.find("layer"), kMostLayers);
  const Json* ids = line.find("ids");
  if (layer < 0 || ids == nullptr || !ids->is_array() || ids->as_array().empty() ||
      ids->as_array().size() % static_cast<std::size_t>(trace.top_k) != 0) {
    return fail(ErrorCode::kCorrupt, "expected {{\"layer\":L,\"ids\":[...]}} with a multiple of {} ids", trace.top_k);
  }
  call.layer = static_cast<std::int32_t>(layer);
  trace.num_layers = std::max(trace.num_layers, call.layer + 1);
  for (const Json& value : ids->as_array()) {
    const std::int64_t id = small_integer(&value, kMostExperts);
    if (id < 0) return fail(ErrorCode::kCorrupt, "an id is no number in 0..{}", kMostExperts - 1);
    call.ids.push_back(static_cast<std::int32_t>(id));
    trace.num_experts = std::max(trace.num_experts, call.ids.back() + 1);
  }
  trace.calls.push_back(std::move(call));
  return {};
}

}  // namespace

Result<std::unique_ptr<ExpertExecutor>> RecordingExpertExecutor::create(std::unique_ptr<ExpertExecutor> inner,
                                                                        Backend& device,
                                                                        const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return fail(ErrorCode::kIo, "{}: can't write the routing trace: {}", escape(path.string()), std::strerror(errno));
  }
  return std::unique_ptr<ExpertExecutor>(new RecordingExpertExecutor(std::move(inner), device, file));
}

Status RecordingExpertExecutor::write(std::string_view line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size()) return {};
  return fail(ErrorCode::kIo, "can't write the routing trace: {}", std::strerror(errno));
}

Status RecordingExpertExecutor::add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) {
  top_k_ = std::max(top_k_, top_k);
  return inner_->add_bank(layer, top_k, bank);
}

Status RecordingExpertExecutor::prepare() {
  VN_TRY(write(fmt::format("{{\"vernier_routing_trace\":1,\"top_k\":{}}}\n", std::max(top_k_, 1))));
  return inner_->prepare();
}

Status RecordingExpertExecutor::run(std::int32_t layer, const ExpertMlpArgs& args) {
  if (args.x.rows > 0) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(args.x.rows * args.top_k));
    VN_TRY(device_.copy_to_host(ids.data(), args.ids, ids.size() * sizeof(std::int32_t)));
    std::string line = fmt::format("{{\"layer\":{},\"ids\":[", layer);
    for (std::size_t i = 0; i < ids.size(); ++i) line += fmt::format("{}{}", i == 0 ? "" : ",", ids[i]);
    line += "]}\n";
    VN_TRY(write(line));
  }
  return inner_->run(layer, args);
}

Result<RoutingTrace> parse_routing_trace(std::string_view text) {
  RoutingTrace trace;
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    const auto read = [&]() -> Status {
      VN_ASSIGN(const Json json, parse_json(line));
      return number == 1 ? read_header(json, trace) : read_call(json, trace);
    };
    if (Status status = read(); !status) {
      return tl::unexpected(with_context(std::move(status).error(), fmt::format("line {}", number)));
    }
  }
  if (number == 0) return fail(ErrorCode::kCorrupt, "the routing trace is empty");
  return trace;
}

Result<ReplayResult> replay_trace(const RoutingTrace& trace, std::string_view policy, std::int64_t slots) {
  const std::int64_t all = std::int64_t{trace.num_layers} * trace.num_experts;
  ReplayResult result;
  result.slots = std::min(slots, std::max<std::int64_t>(all, trace.top_k));
  if (slots < trace.top_k) {
    return fail(ErrorCode::kInvalidArgument, "{} slots are fewer than the {} experts that a token chooses", slots,
                trace.top_k);
  }
  const auto count = static_cast<std::int32_t>(result.slots);
  VN_ASSIGN(auto created, create_eviction_policy(policy, count));
  SlotCache cache(trace.num_layers, trace.num_experts, count, std::move(created));
  std::vector<std::int32_t> experts;
  for (const RoutingTrace::Call& call : trace.calls) {
    experts = call.ids;
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    for (const std::int32_t expert : experts) {
      const SlotCache::Admission admission = cache.admit(call.layer, expert);
      cache.unpin(admission.slot);
      ++result.uses;
      if (admission.hit) ++result.hits;
    }
  }
  return result;
}

}  // namespace vernier
