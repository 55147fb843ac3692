#include "placement/memory_plan.h"

#include <algorithm>

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

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; }

/// What to do about a plan that doesn't fit.
std::string way_out(const MemoryPlan& plan, const MemoryNeeds& needs, const MemoryInfo& memory) {
  if (plan.largest_context > 0) {
    return fmt::format("the largest context that fits is {0} tokens (-c {0})", plan.largest_context);
  }
  const std::uint64_t rest = plan.total_bytes - std::min(needs.movable_bytes, plan.total_bytes);
  if (needs.movable_bytes > 0 && rest < memory.available_bytes) {
    return fmt::format(
        "--experts hybrid or offload keeps {:.1f} MiB of experts in host memory; the rest, {:.1f} MiB, fits",
        mebibytes(needs.movable_bytes), mebibytes(rest));
  }
  return "not even the weights fit; use a smaller model";
}

}  // namespace

Status check_fits(const MemoryPlan& plan, const MemoryNeeds& needs, const MemoryInfo& memory) {
  if (plan.fits) return {};
  return fail_with_hint(
      ErrorCode::kOutOfMemory, way_out(plan, needs, memory),
      "the model needs {:.1f} MiB (weights {:.1f}, caches {:.1f}, activations {:.1f}); {:.1f} of {:.1f} "
      "MiB are available",
      mebibytes(plan.total_bytes), mebibytes(needs.weight_bytes), mebibytes(plan.cache_bytes),
      mebibytes(needs.activation_bytes), mebibytes(memory.available_bytes), mebibytes(memory.total_bytes));
}

}  // namespace vernier
