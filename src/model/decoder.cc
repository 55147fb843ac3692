#include "model/decoder.h"

#include <fmt/core.h>

namespace vernier {

Status Model::draft(const StepBatch& /*batch*/, MatrixView /*logits*/) {
  return fail(ErrorCode::kUnsupported, "the model holds no multi-token prediction block");
}

std::string layer_prefix(std::size_t layer) { return fmt::format("layers.{}.", layer); }

Status Decoder::load_trunk(WeightLoader& loader, float embedding_multiplier) {
  loader.set_prefix("");
  VN_ASSIGN(embedding_, loader.matrix("embed"));
  VN_ASSIGN(norm_, loader.vector("norm"));
  head_ = embedding_;
  if (loader.has("head")) {
    VN_ASSIGN(head_, loader.matrix("head"));
  }
  embedding_multiplier_ = embedding_multiplier;
  return {};
}

Status Decoder::reserve(std::int32_t max_tokens, std::int32_t max_outputs) {
  for (const Slot slot : {Slot::kResidual, Slot::kNormed, Slot::kFinal}) workspace_.need(slot, config_.hidden_size);
  reserve_layers(workspace_);
  return workspace_.allocate(backend_, max_tokens, max_outputs);
}

Status Decoder::check(const StepBatch& batch, MatrixView logits) const {
  const auto num_tokens = static_cast<std::int64_t>(batch.tokens.size());
  const auto num_outputs = static_cast<std::int64_t>(batch.output_rows.size());
  if (num_tokens > workspace_.max_tokens() || num_outputs > workspace_.max_outputs()) {
    return fail(ErrorCode::kInternal, "a step of {} tokens and {} outputs, but {} and {} were reserved", num_tokens,
                num_outputs, workspace_.max_tokens(), workspace_.max_outputs());
  }
  if (logits.rows != num_outputs || logits.cols != config_.vocab_size) {
    return fail(ErrorCode::kInternal, "logits are [{}, {}], expected [{}, {}]", logits.rows, logits.cols, num_outputs,
                config_.vocab_size);
  }
  if (static_cast<std::int64_t>(batch.caches.size()) < config_.num_layers) {
    return fail(ErrorCode::kInternal, "caches of {} layers, expected {}", batch.caches.size(), config_.num_layers);
  }
  for (const std::int32_t row : batch.output_rows) {
    if (row < 0 || row >= num_tokens) return fail(ErrorCode::kInternal, "output row {} of {} tokens", row, num_tokens);
  }
  return {};
}

Status Decoder::forward(const StepBatch& batch, MatrixView logits) {
  VN_TRY(check(batch, logits));
  if (batch.tokens.empty()) return {};
  const Step step = step_of(batch);
  const MatrixView x = step.view(Slot::kResidual, config_.hidden_size);
  VN_TRY(backend_.embed({batch.tokens, &embedding_, embedding_multiplier_, x}));
  VN_TRY(prepare(step, x));
  const auto num_layers = static_cast<std::size_t>(config_.num_layers);
  for (std::size_t layer = 0; layer < num_layers; ++layer) VN_TRY(run_layer(step, layer, x));
  if (batch.hidden.data != nullptr) VN_TRY(norm(step, x, norm_, batch.hidden));
  return compute_logits(step, x, norm_, logits);
}

Status Decoder::norm(const Step& step, MatrixView x, std::span<const float> weight, MatrixView y) const {
  return step.backend.rms_norm({.x = x, .weight = weight, .eps = static_cast<float>(config_.norm_eps), .y = y});
}

InputNorm Decoder::input_norm(const Step& step, std::span<const float> weight) const {
  return {weight, static_cast<float>(config_.norm_eps), step.view(Slot::kNormed, config_.hidden_size)};
}

Status Decoder::compute_logits(const Step& step, MatrixView x, std::span<const float> weight, MatrixView logits) const {
  const auto rows = step.batch.output_rows;
  if (rows.empty()) return {};
  const auto num_outputs = static_cast<std::int64_t>(rows.size());
  const MatrixView last = workspace_.view(Slot::kFinal, num_outputs, config_.hidden_size);
  // Only the wanted rows are normalised, each run of neighbours at once.
  for (std::int64_t begin = 0; begin < num_outputs;) {
    std::int64_t end = begin + 1;
    while (end < num_outputs && rows[static_cast<std::size_t>(end)] == rows[static_cast<std::size_t>(end - 1)] + 1)
      ++end;
    const std::int64_t first = rows[static_cast<std::size_t>(begin)];
    VN_TRY(norm(step, x.slice_rows(first, end - begin), weight, last.slice_rows(begin, end - begin)));
    begin = end;
  }
  const LinearOutput head{&head_, {}, logits};
  VN_TRY(step.backend.linear({last, std::span(&head, 1)}));
  if (config_.logit_soft_cap == 0.0) return {};
  return step.backend.soft_cap({logits, static_cast<float>(config_.logit_soft_cap)});
}

}  // namespace vernier
