#include "placement/experts.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/cgroup.h"
#include "base/checked_math.h"
#include "placement/host_experts.h"
#include "placement/offload_experts.h"

namespace vernier {
namespace {

/// All experts in the backend's own memory, computed by its own kernels.
class LocalExpertExecutor final : public ExpertExecutor {
 public:
  explicit LocalExpertExecutor(Backend& backend) : backend_(backend) {}
  Backend& home() override { return backend_; }
  Status add_bank(std::int32_t, std::int32_t, const ExpertWeights&) override { return {}; }
  Status prepare() override { return {}; }
  bool is_repeatable() const override { return true; }
  Status run(std::int32_t /*layer*/, const ExpertMlpArgs& args) override { return backend_.expert_mlp(args); }

 private:
  Backend& backend_;
};

constexpr std::array<std::string_view, 5> kModes = {"auto", "fused", "offload", "hybrid", "cpu"};

/// The factor of a size's unit: "", "K", "MiB", "gb", ...; 0 when there is no such unit. Units are powers of 1024.
std::uint64_t unit_factor(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kmgt";
  std::string lower(unit);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (lower == "b") return 1;
  const std::size_t prefix = lower.empty() ? std::string_view::npos : kPrefixes.find(lower[0]);
  if (prefix == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib") return 0;
  return std::uint64_t{1} << (10 * (prefix + 1));
}

Result<ExpertPlacement> place_on_host(const ExpertRequest& request, Backend& backend) {
  const std::string_view mode = request.mode;
  if (mode != "auto" && mode != "cpu") {
    return fail_with_hint(ErrorCode::kDevice, "use --experts auto or cpu",
                          "--experts {} needs a GPU; the device is '{}'", mode, backend.name());
  }
  if (!request.cache.empty() || request.store != "auto") {
    return fail(ErrorCode::kDevice, "--expert-{} needs a GPU; the device is '{}'",
                request.cache.empty() ? "store" : "cache", backend.name());
  }
  return ExpertPlacement{"cpu", std::make_unique<LocalExpertExecutor>(backend), true};
}

/// Memory that the process holds and no file backs; 0 where the system doesn't say.
std::uint64_t own_bytes() {
  const std::string status = read_small_file("/proc/self/status").value_or("");
  constexpr std::string_view kKey = "RssAnon:";
  std::size_t at = status.find(kKey);
  if (at == std::string::npos) return 0;
  at = status.find_first_not_of(" \t", at + kKey.size());
  std::uint64_t kib = 0;
  if (at != std::string::npos) (void)std::from_chars(status.data() + at, status.data() + status.size(), kib);
  return kib * 1024;
}

/// What computes the experts of prompts on a device though they belong on the host. Null where experts can't come
/// quickly enough for that to pay.
std::unique_ptr<OffloadExpertExecutor> streamer(const ExpertRequest& request, Backend& device,
                                                const std::shared_ptr<Backend>& host) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  if (dynamic_cast<RecordPlacer*>(&device) == nullptr) return nullptr;
  OffloadOptions options{.slot_bytes = std::min(request.free_bytes / 2, kMostBytes), .store = ExpertStore::kFile};
  options.num_threads = request.host.num_threads;
  options.ahead_bytes = std::max<std::uint64_t>(options.slot_bytes / 2, 1);
  options.locked_bytes = lockable_bytes(host->memory().available_bytes, own_bytes(), cgroup_memory_limit());
  return std::make_unique<OffloadExpertExecutor>(device, host, options);
}

}  // namespace

Result<std::string_view> choose_expert_store(std::string_view asked, std::uint64_t expert_bytes,
                                             std::uint64_t available_bytes) {
  constexpr std::string_view kMemory = "memory";
  constexpr std::string_view kFile = "file";
  if (asked == kMemory) return kMemory;
  if (asked == kFile) return kFile;
  if (asked == "auto") return expert_bytes <= available_bytes - available_bytes / 8 ? kMemory : kFile;
  return fail(ErrorCode::kInvalidArgument, "unknown --expert-store '{}'; known: auto, memory, file", escape(asked));
}

std::uint64_t lockable_bytes(std::uint64_t available_bytes, std::uint64_t own_bytes,
                             std::optional<std::uint64_t> limit) {
  const std::uint64_t bytes = std::min(available_bytes + own_bytes, limit.value_or(~std::uint64_t{0}));
  return bytes - bytes / 8;
}

Result<std::int64_t> parse_expert_cache(std::string_view text, std::int64_t num_experts, std::uint64_t record_bytes) {
  if (text.empty()) return 0;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto malformed = [&] {
    return fail_with_hint(ErrorCode::kInvalidArgument, "give a size (2GiB), a share (25%) or a number of experts (64)",
                          "malformed --expert-cache '{}'", escape(text));
  };
  if (error != std::errc() || number == 0) return malformed();
  constexpr std::uint64_t kMost = 1U << 30U;
  if (unit.empty()) return static_cast<std::int64_t>(std::min(number, kMost));
  if (unit == "%") {
    if (number > 100) return malformed();
    const std::int64_t count = num_experts * static_cast<std::int64_t>(number) / 100;
    return std::max<std::int64_t>(count, 1);
  }
  const std::uint64_t factor = unit_factor(unit);
  const auto bytes = (CheckedU64(number) * CheckedU64(factor)).value();
  if (factor == 0 || !bytes) return malformed();
  const std::uint64_t count = *bytes / std::max<std::uint64_t>(record_bytes, 1);
  return static_cast<std::int64_t>(std::clamp<std::uint64_t>(count, 1, kMost));
}

Result<ExpertPlacement> place_experts(const ExpertRequest& request, Backend& device) {
  std::string_view mode = request.mode;
  if (std::find(kModes.begin(), kModes.end(), mode) == kModes.end()) {
    return fail(ErrorCode::kInvalidArgument, "unknown --experts '{}'; known: auto, fused, offload, hybrid, cpu",
                escape(mode));
  }
  VN_TRY(choose_expert_store(request.store, 0, 0).map([](std::string_view) {}));
  if (device.is_host()) return place_on_host(request, device);
  const std::int64_t count = std::max<std::int64_t>(request.num_experts, 1);
  const std::uint64_t record_bytes = request.expert_bytes / static_cast<std::uint64_t>(count);
  VN_ASSIGN(const std::int64_t slots, parse_expert_cache(request.cache, request.num_experts, record_bytes));
  if (mode == "auto") mode = request.cache.empty() && request.expert_bytes <= request.free_bytes ? "fused" : "hybrid";
  if (!request.cache.empty() && (mode == "fused" || mode == "cpu")) {
    return fail(ErrorCode::kInvalidArgument, "--expert-cache goes with --experts offload and hybrid, not {}", mode);
  }
  if (request.store != "auto" && (mode == "fused" || mode == "cpu")) {
    return fail(ErrorCode::kInvalidArgument, "--expert-store goes with --experts offload and hybrid, not {}", mode);
  }
  if (mode == "fused" || request.num_experts == 0) {
    return ExpertPlacement{"fused", std::make_unique<LocalExpertExecutor>(device), true};
  }
  VN_ASSIGN(std::shared_ptr<Backend> host, create_backend("cpu", request.host));
  if (mode == "cpu") {
    return ExpertPlacement{"cpu", std::make_unique<HostExpertExecutor>(device, host, streamer(request, device, host)),
                           false};
  }
  VN_ASSIGN(const std::string_view store,
            choose_expert_store(request.store, request.expert_bytes, host->memory().available_bytes));
  OffloadOptions options{.hybrid = mode == "hybrid", .num_slots = slots, .slot_bytes = request.free_bytes};
  options.store = store == "file" ? ExpertStore::kFile : ExpertStore::kMemory;
  options.num_threads = request.host.num_threads;
  return ExpertPlacement{std::string(mode), std::make_unique<OffloadExpertExecutor>(device, std::move(host), options),
                         false, store};
}

}  // namespace vernier
