// SentencePiece's byte-pair encoding as GGUF stores it: no list of merges; of all neighbours whose concatenation is a
// token, the one with the highest score is merged first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/merge_loop.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

/// Reused between pieces. Symbols are spans of the text.
struct ScoreBpeScratch {
  std::string text;
  std::vector<std::uint32_t> begins;  // in bytes
  std::vector<std::uint32_t> sizes;   // 0: merged into the left neighbour
  MergeLoopScratch loop;
};

class ScoreBpeModel {
 public:
  /// One finite score a token. The vocabulary must outlive the model.
  static Result<ScoreBpeModel> build(const Vocabulary& vocabulary, const std::vector<float>& scores,
                                     std::optional<TokenId> unknown);

  /// Appends the ids of one piece. O(n log n).
  void encode(std::u32string_view piece, ScoreBpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  ScoreBpeModel(const Vocabulary& vocabulary, std::optional<TokenId> unknown)
      : vocabulary_(&vocabulary), unknown_(unknown) {}

  void append_ids(std::string_view symbol, std::vector<TokenId>& out) const;

  const Vocabulary* vocabulary_;
  std::vector<std::uint32_t> costs_;  // by id, in the order of falling scores
  std::optional<TokenId> unknown_;
};

}  // namespace vernier::text_internal
