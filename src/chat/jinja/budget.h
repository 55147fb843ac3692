// What one compile or render may still cost: steps, processor time, live memory. Every allocation whose size a
// template or a message controls is charged here first, so that a refusal comes before the memory is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "chat/chat_template.h"

namespace vernier::jinja {

class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits), start_ns_(thread_ns()) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Pays for `steps` units of work.
  [[nodiscard]] Status spend(std::uint64_t steps = 1) {
    steps_ += steps;
    return steps_ < next_look_ ? Status() : look();
  }
  /// Pays for an operation that reads or writes `bytes` bytes of text: one step for each KiB.
  [[nodiscard]] Status spend_text(std::size_t bytes) { return spend(1 + bytes / 1024); }

  /// Reserves memory; pair with release().
  [[nodiscard]] Status charge(std::size_t bytes) {
    if (bytes > limits_.max_memory_bytes - live_bytes_) {
      return fail(ErrorCode::kInvalidArgument, "the template needs more than {} bytes of memory",
                  limits_.max_memory_bytes);
    }
    live_bytes_ += bytes;
    return {};
  }
  void release(std::size_t bytes) { live_bytes_ -= bytes; }

  [[nodiscard]] const TemplateLimits& limits() const { return limits_; }

 private:
  static constexpr std::uint64_t kLookEvery = 1024;  // steps between two looks at the clock

  /// Processor time of this thread: a busy machine must not make a good template fail.
  static std::int64_t thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
  Status look() {
    if (steps_ > limits_.max_steps) {
      return fail(ErrorCode::kInvalidArgument, "the template takes more than {} steps", limits_.max_steps);
    }
    const std::int64_t limit_ms = limits_.max_cpu_time.count();
    if (limit_ms > 0 && (thread_ns() - start_ns_) / 1'000'000 > limit_ms) {
      return fail(ErrorCode::kInvalidArgument, "the template takes longer than {} ms", limit_ms);
    }
    next_look_ = steps_ + kLookEvery;
    return {};
  }

  const TemplateLimits limits_;
  std::int64_t start_ns_;
  std::uint64_t steps_ = 0;
  std::uint64_t next_look_ = kLookEvery;
  std::size_t live_bytes_ = 0;
};

/// Memory reserved from a budget, given back on destruction. Empty for constants of the compiled template.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }
  [[nodiscard]] Status grow(Budget& budget, std::size_t bytes) {
    VN_TRY(budget.charge(bytes));
    budget_ = &budget;
    bytes_ += bytes;
    return {};
  }
  /// Takes over what `other` holds of the same budget.
  void absorb(Charge other) {
    if (other.budget_ == nullptr) return;
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ += other.bytes_;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  Budget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace vernier::jinja
