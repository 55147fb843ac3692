// Activations of a model: allocated once for the largest step, used by every layer in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/result.h"

namespace vernier {

/// What a block keeps between its operations. A slot holds one value at a time; blocks that run one after the other
/// share slots.
enum class Slot : std::uint8_t {
  kResidual,  ///< the stream that all blocks add to
  kNormed,    ///< a block's normalised input
  kOutput,    ///< a block's output where it isn't added to the stream directly
  kQuery,
  kKey,
  kValue,
  kMixed,  ///< attention's output before its last projection
  kGate,
  kUp,
  kRouterInput,
  kExpertIds,  ///< 32-bit integers
  kExpertWeights,
  kGatedQuery,  ///< qwen35: query and output gate of each head, before they part
  kSharedGate,  ///< qwen35moe: one number a token
  kDeltaInput,  ///< gated delta net: q, k and v before the convolution
  kDeltaGate,
  kDeltaA,
  kDeltaB,
  kPerLayer,  ///< Gemma 4: inputs of all layers
  kPerLayerContext,
  kDraftInput,  ///< multi-token prediction: normalised embedding and state side by side
  kFinal,       ///< normalised rows for the head
  kCount,
};

/// need() while the model is built, allocate() once, then view(). Not for use from several threads.
class Workspace {
 public:
  /// Asks for room for [tokens, cols] in `slot`; the largest request counts.
  void need(Slot slot, std::int64_t cols);
  /// Allocates all slots for steps of up to `max_tokens` rows. kFinal gets room for `max_outputs` rows.
  [[nodiscard]] Status allocate(Backend& backend, std::int64_t max_tokens, std::int64_t max_outputs);
  /// A dense matrix in `slot`, uninitialised. kInternal never happens: sizes are checked at the start of a step.
  [[nodiscard]] MatrixView view(Slot slot, std::int64_t rows, std::int64_t cols) const;
  [[nodiscard]] std::int32_t* integers(Slot slot) const;
  [[nodiscard]] std::uint64_t size_bytes() const;
  [[nodiscard]] std::int64_t max_tokens() const { return max_tokens_; }
  [[nodiscard]] std::int64_t max_outputs() const { return max_outputs_; }

 private:
  static constexpr std::size_t kSlots = static_cast<std::size_t>(Slot::kCount);
  std::array<std::int64_t, kSlots> cols_{};
  std::array<Buffer, kSlots> buffers_;
  std::int64_t max_tokens_ = 0;
  std::int64_t max_outputs_ = 0;
};

}  // namespace vernier
