// How `vernier bench` shows its figures: a table for people, a JSON object a line for scripts.
#pragma once

#include <string>

#include "base/json.h"
#include "bench/expert_replay.h"
#include "bench/kernel_bench.h"
#include "bench/model_bench.h"
#include "vernier/engine.h"

namespace vernier::cli {

[[nodiscard]] std::string model_heading(const ModelInfo& info);
[[nodiscard]] std::string test_line(const bench::TestResult& result);
[[nodiscard]] Json test_json(const bench::TestResult& result);

[[nodiscard]] std::string kernel_heading();
[[nodiscard]] std::string kernel_line(const bench::KernelResult& result);
[[nodiscard]] Json kernel_json(const bench::KernelResult& result);

[[nodiscard]] std::string replay_heading();
[[nodiscard]] std::string replay_line(const bench::ExpertReplay& replay);
[[nodiscard]] Json replay_json(const bench::ExpertReplay& replay);

}  // namespace vernier::cli
