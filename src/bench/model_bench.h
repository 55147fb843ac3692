// Speed of a whole model: prefill and decode steps as the scheduler would plan them, without sampling and text.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/expert_executor.h"
#include "base/result.h"
#include "bench/cost.h"
#include "bench/spread.h"
#include "bench/synthetic_model.h"
#include "bench/test_plan.h"
#include "runtime/loaded_model.h"
#include "vernier/engine.h"

namespace vernier::bench {

struct ModelBenchOptions {
  EngineOptions engine;                       ///< context 0: what the tests need; max_sequences is set from them, too
  std::optional<SyntheticOptions> synthetic;  ///< instead of engine.model
  std::vector<Test> tests;
  std::vector<std::int32_t> depths{0};
  std::int32_t repeat = 5;
  BenchClock clock = BenchClock::kWall;  ///< of rates and of ceilings
};

inline constexpr std::size_t kWindowSteps = 100;

struct TestResult {
  Test test;
  std::int32_t depth = 0;
  Spread tok_s;  ///< tokens of all sequences a second
  double cpu_s_per_tok = 0.0;
  double weight_bytes_per_token = 0.0;  ///< that a step must read, shared among its tokens
  double cache_bytes_per_token = 0.0;
  double gb_s = 0.0;  ///< weights and caches
  double gflop_s = 0.0;
  Ceilings limit;                     ///< median of those measured between the repetitions; zeros: unknown
  double share_of_limit = 0.0;        ///< least possible time by time taken, median; 0: unknown
  ExpertMoves experts;                ///< in all repetitions
  std::int64_t kernels_a_step = 0;    ///< of generation, where the device launches steps as a whole; 0: unknown
  double slowest_window_tok_s = 0.0;  ///< least rate of kWindowSteps steps in a row, of any repetition; 0: unknown
  double moved_gb_s = 0.0;            ///< bytes of experts that moved, by the time that all repetitions took
};

class ModelBench {
 public:
  /// Loads the model. What can be refused in arithmetic is: a context that the model doesn't have, weights and caches
  /// that memory doesn't hold.
  [[nodiscard]] static Result<ModelBench> open(const ModelBenchOptions& options);

  [[nodiscard]] const ModelInfo& info() const { return loaded_->info; }
  /// One test, after a step to warm up: repetitions in turn with measurements of the device's ceilings. kCorrupt when
  /// the logits aren't finite.
  [[nodiscard]] Result<TestResult> run(const Test& test, std::int32_t depth, std::int32_t repeat);

 private:
  explicit ModelBench(std::unique_ptr<LoadedModel> loaded) : loaded_(std::move(loaded)) {}

  struct Timing {
    double seconds = 0.0;
    double cpu_seconds = 0.0;
    double slowest_window = 0.0;  ///< seconds of kWindowSteps steps of generation; 0: there were fewer
    std::vector<Cost> steps;
  };

  /// Keys, values and states of tokens that no step computes.
  [[nodiscard]] Status fill_caches(std::int32_t num_slots);
  void start_sequences(const Test& test, std::int32_t depth);
  [[nodiscard]] Result<Timing> time_once(const Test& test, std::int32_t depth);
  [[nodiscard]] Status run_prompts(std::vector<Cost>& steps);
  [[nodiscard]] Status run_step(const StepPlan& plan, std::vector<Cost>& steps);

  std::unique_ptr<LoadedModel> loaded_;
  std::optional<CostModel> costs_;
  BenchClock clock_ = BenchClock::kWall;
  std::int32_t threads_ = 1;  // among which CPU time is shared out
  std::int32_t batch_tokens_ = 0;
  std::int32_t pages_a_sequence_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace vernier::bench
