#include "runtime/step_runner.h"

#include <algorithm>

namespace vernier {

Result<StepRunner> StepRunner::create(Backend& backend, Model& model, KvCache& cache, std::int32_t max_tokens,
                                      std::int32_t max_outputs) {
  StepRunner runner(backend, model, cache);
  runner.vocab_size_ = model.config().vocab_size;
  runner.max_scored_tokens_ = std::min(max_tokens, max_outputs);
  VN_TRY(model.reserve(max_tokens, max_outputs));
  const auto floats = static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(runner.vocab_size_);
  VN_ASSIGN(runner.device_logits_, backend.allocate(floats * sizeof(float)));
  runner.host_logits_.resize(floats);
  return runner;
}

Status StepRunner::run(const StepPlan& plan, bool all_rows) {
  tokens_.clear();
  output_rows_.clear();
  slices_.clear();
  for (const StepShare& share : plan.shares) {
    const Sequence& sequence = *share.sequence;
    if (sequence.num_computed == 0) VN_TRY(cache_->clear_slot(*backend_, sequence.state_slot));
    const auto first_row = static_cast<std::int32_t>(tokens_.size());
    const auto begin = sequence.tokens.begin() + sequence.num_computed;
    tokens_.insert(tokens_.end(), begin, begin + share.num_tokens);
    slices_.push_back({first_row, share.num_tokens, sequence.num_computed, sequence.pages, sequence.state_slot});
    const std::int32_t end_row = first_row + share.num_tokens;
    if (all_rows) {
      for (std::int32_t row = first_row; row < end_row; ++row) output_rows_.push_back(row);
    } else if (share.wants_logits) {
      output_rows_.push_back(end_row - 1);
    }
  }
  const auto outputs = static_cast<std::int64_t>(output_rows_.size());
  const MatrixView logits{static_cast<float*>(device_logits_.data()), outputs, vocab_size_, vocab_size_};
  VN_TRY(model_->forward({tokens_, slices_, output_rows_, cache_->layers()}, logits));
  VN_TRY(backend_->synchronize());
  VN_TRY(backend_->copy_to_host(host_logits_.data(), logits.data,
                                static_cast<std::size_t>(outputs * vocab_size_) * sizeof(float)));
  for (const StepShare& share : plan.shares) share.sequence->num_computed += share.num_tokens;
  return {};
}

std::span<float> StepRunner::logits(std::int32_t output_row) {
  return std::span(host_logits_)
      .subspan(static_cast<std::size_t>(output_row * vocab_size_), static_cast<std::size_t>(vocab_size_));
}

}  // namespace vernier
