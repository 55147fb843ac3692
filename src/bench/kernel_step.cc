// Calls of an operation as one step. On a GPU that is how a model makes them: as a recorded graph, without the host's
// launches between them.
#include <atomic>

#include "bench/kernel_cases.h"
#include "bench/random.h"

namespace vernier::bench {
namespace {

constexpr std::int32_t kOnePage[] = {0};

/// The steps of one case.
class Steps {
 public:
  Steps(Backend& backend, KernelCase one, std::int64_t calls, std::uint64_t owner)
      : backend_(backend), one_(std::move(one)), calls_(calls), owner_(owner), random_(owner) {
    if (one_.step.slices.empty()) {
      one_.step.slices.push_back({.first_row = 0, .num_tokens = 1, .past = 0, .pages = kOnePage});
    }
  }

  Status run(std::int64_t number) {
    StepInputs& inputs = one_.step;
    for (std::int32_t& token : inputs.tokens) {
      token = static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(inputs.vocabulary)));
    }
    const RepeatableStep step = {
        .owner = owner_, .tokens = inputs.tokens, .slices = inputs.slices, .overlap = inputs.overlap};
    return backend_.run_step(step, [this, number] { return calls(calls_ == 1 ? number : 0); });
  }

 private:
  Status calls(std::int64_t first) {
    if (one_.step.begin) VN_TRY(one_.step.begin(one_.step.tokens));
    for (std::int64_t i = 0; i < calls_; ++i) VN_TRY(one_.run(first + i));
    return {};
  }

  Backend& backend_;
  KernelCase one_;
  std::int64_t calls_;
  std::uint64_t owner_;
  Random random_;
};

}  // namespace

KernelCase in_steps(Backend& backend, KernelCase one, std::int64_t calls) {
  static std::atomic<std::uint64_t> owners = std::uint64_t{1} << 63;  // far from those of models
  KernelCase stepped = one;
  stepped.steps = calls;
  const auto steps = std::make_shared<Steps>(backend, std::move(one), calls, owners++);
  stepped.run = [steps](std::int64_t number) { return steps->run(number); };
  return stepped;
}

}  // namespace vernier::bench
