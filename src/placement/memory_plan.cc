#include "placement/memory_plan.h"

#include "base/checked_math.h"

namespace vernier {
namespace {

constexpr std::uint64_t kTooMuch = ~std::uint64_t{0};

}  // namespace

MemoryPlan plan_memory(const MemoryNeeds& needs, const MemoryInfo& memory, std::int64_t context,
                       std::int64_t sequences) {
  const auto count = static_cast<std::uint64_t>(sequences);
  const CheckedU64 kv = CheckedU64(needs.kv_bytes_per_token) * CheckedU64(static_cast<std::uint64_t>(context)) * count;
  const CheckedU64 states = CheckedU64(needs.state_bytes_per_sequence) * count;
  const CheckedU64 fixed = CheckedU64(needs.weight_bytes) + CheckedU64(needs.activation_bytes) + states;
  MemoryPlan plan;
  plan.cache_bytes = (kv + states).value().value_or(kTooMuch);
  plan.total_bytes = (fixed + kv).value().value_or(kTooMuch);
  plan.fits = plan.total_bytes <= memory.available_bytes;
  const std::uint64_t base = fixed.value().value_or(kTooMuch);
  if (base <= memory.available_bytes) {
    const std::uint64_t per_token = (CheckedU64(needs.kv_bytes_per_token) * count).value().value_or(kTooMuch);
    plan.largest_context =
        per_token == 0 ? context : static_cast<std::int64_t>((memory.available_bytes - base) / per_token);
  }
  return plan;
}

Status check_fits(const MemoryPlan& plan, const MemoryNeeds& needs, const MemoryInfo& memory) {
  if (plan.fits) return {};
  constexpr double kMiB = 1024.0 * 1024.0;
  const std::string hint = plan.largest_context > 0 ? fmt::format("the largest context that fits is {} tokens (-c {})",
                                                                  plan.largest_context, plan.largest_context)
                                                    : std::string("not even the weights fit; use a smaller model");
  return fail_with_hint(ErrorCode::kOutOfMemory, hint,
                        "the model needs {:.1f} MiB (weights {:.1f}, caches {:.1f}) and {:.1f} MiB are available",
                        static_cast<double>(plan.total_bytes) / kMiB, static_cast<double>(needs.weight_bytes) / kMiB,
                        static_cast<double>(plan.cache_bytes) / kMiB,
                        static_cast<double>(memory.available_bytes) / kMiB);
}

}  // namespace vernier
