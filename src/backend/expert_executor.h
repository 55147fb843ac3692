// Who computes the experts of a layer. A model calls this interface only; where experts live and which device runs them
// is decided by placement/.
#pragma once

#include "backend/backend.h"

namespace vernier {

/// What became of the experts that steps chose, since the model was built: each once a layer and step.
struct ExpertMoves {
  std::int64_t found = 0;    ///< in the device's slots
  std::int64_t moved = 0;    ///< into slots
  std::int64_t on_host = 0;  ///< computed by the host
  std::uint64_t moved_bytes = 0;
  double lane_bytes_per_second = 0.0;  ///< of the latest moves, while they lasted; 0: unknown
};

class ExpertExecutor {
 public:
  virtual ~ExpertExecutor() = default;
  ExpertExecutor() = default;
  ExpertExecutor(const ExpertExecutor&) = delete;
  ExpertExecutor& operator=(const ExpertExecutor&) = delete;

  /// The backend on which a model places the weights and biases of its experts: not always the one that runs the rest.
  [[nodiscard]] virtual Backend& home() = 0;
  /// Tells of the bank of a layer, placed at home(); once for each, while the model is built.
  [[nodiscard]] virtual Status add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) = 0;
  /// Takes the memory that the executor works with; once, when the model and its caches have theirs.
  [[nodiscard]] virtual Status prepare() = 0;
  /// A step begins: one of decoding, of so many tokens, or another, with 0.
  virtual void begin_step(std::int64_t /*decode_rows*/) {}
  /// All operations of the step that began last have ended.
  virtual void end_step() {}
  /// True where run() will, for the step that began last, only call operations of the model's backend, the same ones
  /// whatever the choices are.
  [[nodiscard]] virtual bool is_repeatable() const { return false; }
  /// All zeros where experts don't move.
  [[nodiscard]] virtual ExpertMoves moves() { return {}; }
  /// Adds the experts' output to args.y; the contract is ExpertMlpArgs'. `layer` names the bank, which
  /// args.experts is.
  [[nodiscard]] virtual Status run(std::int32_t layer, const ExpertMlpArgs& args) = 0;
};

}  // namespace vernier
