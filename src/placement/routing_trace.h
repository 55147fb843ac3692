// Which experts each token chose, recorded from real runs: what cache sizes and policies are judged by. A trace is a
// text file of JSON lines: first {"vernier_routing_trace":1,"top_k":K}, then for each layer of each step
// {"layer":L,"ids":[tokens * K ids]}.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/expert_executor.h"

namespace vernier {

/// Writes a trace while another executor does the work.
class RecordingExpertExecutor final : public ExpertExecutor {
 public:
  /// Creates or empties `path`. kIo when it can't.
  [[nodiscard]] static Result<std::unique_ptr<ExpertExecutor>> create(std::unique_ptr<ExpertExecutor> inner,
                                                                      Backend& device,
                                                                      const std::filesystem::path& path);

  [[nodiscard]] Backend& home() override { return inner_->home(); }
  [[nodiscard]] Status add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) override;
  [[nodiscard]] Status prepare() override;
  void begin_step(std::int64_t decode_rows) override { inner_->begin_step(decode_rows); }
  void end_step() override { inner_->end_step(); }
  [[nodiscard]] Status run(std::int32_t layer, const ExpertMlpArgs& args) override;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  RecordingExpertExecutor(std::unique_ptr<ExpertExecutor> inner, Backend& device, std::FILE* file)
      : inner_(std::move(inner)), device_(device), file_(file) {}
  [[nodiscard]] Status write(std::string_view line);

  std::unique_ptr<ExpertExecutor> inner_;
  Backend& device_;
  std::unique_ptr<std::FILE, Close> file_;
  std::int32_t top_k_ = 0;
};

struct RoutingTrace {
  struct Call {
    std::int32_t layer = 0;
    std::vector<std::int32_t> ids;  ///< [tokens, top_k]
  };
  std::int32_t top_k = 0;
  std::int32_t num_layers = 0;   ///< one more than the largest layer
  std::int32_t num_experts = 0;  ///< likewise
  std::vector<Call> calls;
};

/// kCorrupt with the line for anything that isn't a trace.
[[nodiscard]] Result<RoutingTrace> parse_routing_trace(std::string_view text);

struct ReplayResult {
  std::int64_t slots = 0;
  std::int64_t uses = 0;  ///< experts that some token of a call chose, each once a call
  std::int64_t hits = 0;  ///< those that lay in slots
};

/// Runs a trace against a cache. kInvalidArgument for fewer slots than top_k and for unknown policies.
[[nodiscard]] Result<ReplayResult> replay_trace(const RoutingTrace& trace, std::string_view policy, std::int64_t slots);

}  // namespace vernier
