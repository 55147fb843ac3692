// SentencePiece's byte-pair encoding as GGUF stores it: no list of merges; of all neighbours whose concatenation is a
// token, the one with the highest score is merged first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

struct ScoreBpeScratch {
  struct Symbol {
    std::uint32_t begin;  // byte offset in the piece
    std::uint32_t size;   // bytes; 0 once merged into the left neighbour
    std::int32_t previous;
    std::int32_t next;
  };
  struct Pair {
    float score;
    std::int32_t left;
    std::uint32_t size;
  };
  std::string text;
  std::vector<Symbol> symbols;
  std::vector<Pair> heap;
};

class ScoreBpeModel {
 public:
  /// One finite score a token. The vocabulary must outlive the model.
  static Result<ScoreBpeModel> build(const Vocabulary& vocabulary, std::vector<float> scores,
                                     std::optional<TokenId> unknown);

  /// Appends the ids of one piece. O(n log n).
  void encode(std::u32string_view piece, ScoreBpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  ScoreBpeModel(const Vocabulary& vocabulary, std::vector<float> scores, std::optional<TokenId> unknown)
      : vocabulary_(&vocabulary), scores_(std::move(scores)), unknown_(unknown) {}

  void push_pair(ScoreBpeScratch& scratch, std::int32_t left) const;
  void append_ids(std::string_view symbol, std::vector<TokenId>& out) const;

  const Vocabulary* vocabulary_;
  std::vector<float> scores_;
  std::optional<TokenId> unknown_;
};

}  // namespace vernier::text_internal
