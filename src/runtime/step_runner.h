// Turns a step plan into a forward pass: lays out the batch, runs the model, brings to the host what is asked of the
// logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/expert_executor.h"
#include "backend/ranking.h"
#include "model/model.h"
#include "runtime/kv_cache.h"
#include "runtime/sequence.h"

namespace vernier {

/// Not thread-safe. References must outlive the runner.
class StepRunner {
 public:
  /// Tells `experts` of steps, and lets decode steps be repeated as a whole (Backend::run_step) where it is repeatable.
  void watch_steps(ExpertExecutor& experts) { experts_ = &experts; }
  [[nodiscard]] static Result<StepRunner> create(Backend& backend, Model& model, KvCache& cache,
                                                 std::int32_t max_tokens, std::int32_t max_outputs);

  /// Computes the plan's tokens and advances num_computed of its sequences. With `all_rows`, logits of every token are
  /// kept, else those of shares that want them. Rows come in plan order. What comes next waits for the step's end, and
  /// says if it failed.
  [[nodiscard]] Status run(const StepPlan& plan, bool all_rows);
  /// Ranks the output rows of the last run, a wish each, among the ids below `usable`: `count` entries, 0 for none.
  [[nodiscard]] Status rank(std::span<const RankWish> wishes, std::int32_t count, std::int64_t usable);
  /// The ranking of an output row, until the next call of rank().
  [[nodiscard]] Ranking ranking(std::int32_t output_row) const;
  /// Computes one share (a chunk of one sequence, all rows) and then the multi-token prediction block on every row
  /// whose next token the sequence knows. Returns the number of rows of draft logits, which replace the model's own.
  /// Needs Model::can_draft().
  [[nodiscard]] Result<std::int32_t> run_drafts(const StepShare& share);
  /// Logits [vocab] of an output row of the last run, until the next run; mutable host memory.
  [[nodiscard]] Result<std::span<float>> logits(std::int32_t output_row);
  /// The most tokens of a step that keeps all rows.
  [[nodiscard]] std::int32_t max_scored_tokens() const { return max_scored_tokens_; }
  /// Bytes of activations and logits, those on the host included.
  [[nodiscard]] std::uint64_t reserved_bytes() const;

 private:
  StepRunner(Backend& backend, Model& model, KvCache& cache);

  /// True when each share is one token whose logits are wanted.
  [[nodiscard]] bool is_decode_step() const;
  [[nodiscard]] Status finish_step();
  [[nodiscard]] MatrixView logits_view(std::int64_t rows) const;

  Backend* backend_;
  Model* model_;
  KvCache* cache_;
  std::uint64_t id_;                   ///< of this process, never given twice
  ExpertExecutor* experts_ = nullptr;  ///< may be null: nothing is repeated
  std::int64_t vocab_size_ = 0;
  std::int32_t max_scored_tokens_ = 0;
  Buffer device_logits_;
  Buffer device_ranking_;           // a RankedRow a row, then the entries
  Buffer hidden_;                   // [max_scored_tokens, hidden] where the model can draft
  std::vector<float> host_logits_;  // none where the device's memory is the host's
  Buffer host_ranking_;             // likewise
  std::int64_t ranked_rows_ = 0;
  std::int32_t ranked_count_ = 0;
  std::int64_t ranked_ids_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> output_rows_;
  std::vector<SequenceSlice> slices_;
};

}  // namespace vernier
