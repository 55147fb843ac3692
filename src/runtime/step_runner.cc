#include "runtime/step_runner.h"

#include <algorithm>
#include <atomic>
#include <numeric>

namespace vernier {

namespace {

std::atomic<std::uint64_t> next_id{1};

/// Of RankedRow a row and the entries behind them.
std::size_t ranking_bytes(std::int64_t rows, std::int32_t count) {
  return static_cast<std::size_t>(rows) * (sizeof(RankedRow) + static_cast<std::size_t>(count) * sizeof(RankedLogit));
}

}  // namespace

StepRunner::StepRunner(Backend& backend, Model& model, KvCache& cache)
    : backend_(&backend), model_(&model), cache_(&cache), id_(next_id++) {}

Result<StepRunner> StepRunner::create(Backend& backend, Model& model, KvCache& cache, std::int32_t max_tokens,
                                      std::int32_t max_outputs) {
  StepRunner runner(backend, model, cache);
  runner.vocab_size_ = model.config().vocab_size;
  runner.max_scored_tokens_ = std::min(max_tokens, max_outputs);
  VN_TRY(model.reserve(max_tokens, max_outputs));
  const auto floats = static_cast<std::size_t>(max_outputs) * static_cast<std::size_t>(runner.vocab_size_);
  VN_ASSIGN(runner.device_logits_, backend.allocate(floats * sizeof(float)));
  const std::size_t ranking = ranking_bytes(max_outputs, kMostRanked);
  VN_ASSIGN(runner.device_ranking_, backend.allocate(ranking));
  if (!backend.is_host()) {
    runner.host_logits_.resize(floats);
    VN_ASSIGN(runner.host_ranking_, backend.allocate_host(ranking));
  }
  if (model.can_draft()) {
    const auto states = static_cast<std::size_t>(runner.max_scored_tokens_ * model.config().hidden_size);
    VN_ASSIGN(runner.hidden_, backend.allocate(states * sizeof(float)));
  }
  return runner;
}

Status StepRunner::run(const StepPlan& plan, bool all_rows) {
  tokens_.clear();
  output_rows_.clear();
  slices_.clear();
  for (const StepShare& share : plan.shares) {
    const Sequence& sequence = *share.sequence;
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
  const MatrixView logits = logits_view(static_cast<std::int64_t>(output_rows_.size()));
  const auto forward = [&] { return model_->forward({tokens_, slices_, output_rows_, cache_->layers(), {}}, logits); };
  const bool decodes = is_decode_step();
  if (experts_ != nullptr) experts_->begin_step(decodes ? std::ssize(tokens_) : 0);
  const bool repeats = decodes && experts_ != nullptr && experts_->is_repeatable();
  VN_TRY(repeats ? backend_->run_step({id_, tokens_, slices_}, forward) : forward());
  for (const StepShare& share : plan.shares) share.sequence->num_computed += share.num_tokens;
  return {};
}

bool StepRunner::is_decode_step() const {
  return output_rows_.size() == tokens_.size() && slices_.size() == tokens_.size();
}

MatrixView StepRunner::logits_view(std::int64_t rows) const {
  return {static_cast<float*>(device_logits_.data()), rows, vocab_size_, vocab_size_};
}

Status StepRunner::rank(std::span<const RankWish> wishes, std::int32_t count, std::int64_t usable) {
  ranked_rows_ = std::ssize(wishes);
  ranked_count_ = count;
  ranked_ids_ = usable;
  if (ranked_rows_ == 0 || count == 0) return finish_step();
  auto* const rows = static_cast<RankedRow*>(device_ranking_.data());
  auto* const entries = reinterpret_cast<RankedLogit*>(rows + ranked_rows_);
  VN_TRY(backend_->rank_logits({logits_view(ranked_rows_).slice_cols(0, usable), wishes, count, rows, entries}));
  if (backend_->is_host()) return finish_step();
  VN_TRY(backend_->copy_to_host(host_ranking_.data(), rows, ranking_bytes(ranked_rows_, count)));
  if (experts_ != nullptr) experts_->end_step();
  return {};
}

Status StepRunner::finish_step() {
  VN_TRY(backend_->synchronize());
  if (experts_ != nullptr) experts_->end_step();
  return {};
}

Ranking StepRunner::ranking(std::int32_t output_row) const {
  const Buffer& buffer = backend_->is_host() ? device_ranking_ : host_ranking_;
  const auto* const rows = static_cast<const RankedRow*>(buffer.data());
  const auto* const entries = reinterpret_cast<const RankedLogit*>(rows + ranked_rows_);
  const RankedRow& row = rows[output_row];
  return {row,
          {entries + std::int64_t{output_row} * ranked_count_, static_cast<std::size_t>(row.num_entries)},
          ranked_ids_};
}

Result<std::int32_t> StepRunner::run_drafts(const StepShare& share) {
  Sequence& sequence = *share.sequence;
  const std::int64_t width = model_->config().hidden_size;
  const MatrixView hidden{static_cast<float*>(hidden_.data()), share.num_tokens, width, width};
  const std::span<const std::int32_t> tokens(sequence.tokens);
  const auto first = static_cast<std::size_t>(sequence.num_computed);
  const auto count = static_cast<std::size_t>(share.num_tokens);
  SequenceSlice slice{0, share.num_tokens, sequence.num_computed, sequence.pages, sequence.state_slot};
  VN_TRY(model_->forward({tokens.subspan(first, count), std::span(&slice, 1), {}, cache_->layers(), hidden},
                         logits_view(0)));
  // Row i needs the token behind it, which the last row of a text doesn't have.
  const std::size_t known = std::min(count, tokens.size() - first - 1);
  output_rows_.resize(known);
  std::iota(output_rows_.begin(), output_rows_.end(), 0);
  slice.num_tokens = static_cast<std::int32_t>(known);
  const MatrixView logits = logits_view(static_cast<std::int64_t>(known));
  VN_TRY(model_->draft({tokens.subspan(first + 1, known), std::span(&slice, 1), output_rows_, cache_->layers(),
                        hidden.slice_rows(0, slice.num_tokens)},
                       logits));
  sequence.num_computed += share.num_tokens;
  return slice.num_tokens;
}

std::uint64_t StepRunner::reserved_bytes() const {
  return model_->reserved_bytes() + device_logits_.size() + device_ranking_.size() + host_ranking_.size() +
         hidden_.size() + host_logits_.size() * sizeof(float);
}

Result<std::span<float>> StepRunner::logits(std::int32_t output_row) {
  const auto size = static_cast<std::size_t>(vocab_size_);
  const std::size_t first = static_cast<std::size_t>(output_row) * size;
  float* const row = static_cast<float*>(device_logits_.data()) + first;
  if (backend_->is_host()) return std::span(row, size);
  VN_TRY(backend_->copy_to_host(host_logits_.data() + first, row, size * sizeof(float)));
  return std::span(host_logits_).subspan(first, size);
}

}  // namespace vernier
