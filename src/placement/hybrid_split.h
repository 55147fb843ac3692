// How many of the experts that a step misses the host computes, from what both lanes took in recent steps: never from a
// profile made once. Splitting and copying everything are tried in turn, and the faster one is kept for a while.
#pragma once

#include <cstdint>

namespace vernier {

class HybridSplit {
 public:
  /// Experts of `missing` for the host; the device fetches the rest.
  [[nodiscard]] std::int64_t host_share(std::int64_t missing);

  /// The same where others see to it that splitting pays (StepLanes): both lanes end together.
  [[nodiscard]] std::int64_t even_share(std::int64_t missing) const;

  /// What the host took for `experts` of them, hand-over of activations excluded.
  void record_host(double seconds, std::int64_t experts);
  /// What copying one record takes.
  void record_fetch(double seconds_per_expert);
  /// What a layer's experts took in all, under the split that host_share() chose last.
  void record_step(double seconds, std::int64_t missing);

  /// True where record_step() wants the time of the step that host_share() was asked for last.
  [[nodiscard]] bool wants_time() const { return in_trial_; }
  /// True while nothing is given to the host because copying alone was faster.
  [[nodiscard]] bool fell_back() const { return !split_wins_; }

 private:
  /// A round: kTrial steps that copy everything, kTrial that split, and the rest in the faster way.
  static constexpr std::int64_t kTrial = 8;
  static constexpr std::int64_t kRound = 256;

  struct Mean {
    double value = 0.0;
    std::int64_t count = 0;
    /// The mean of the samples so far; from kRound on, older ones fade.
    void add(double sample) {
      if (count < kRound) ++count;
      value += (sample - value) / static_cast<double>(count);
    }
  };

  Mean host_seconds_;
  Mean fetch_seconds_;
  Mean split_step_;    ///< seconds a missing expert in this round's split steps
  Mean fetched_step_;  ///< the same in those that copied everything
  std::int64_t step_ = 0;
  bool last_was_split_ = false;
  bool in_trial_ = false;
  bool split_wins_ = true;
};

}  // namespace vernier
