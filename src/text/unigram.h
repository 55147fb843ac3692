// The unigram model: the segmentation of a piece with the highest sum of token scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/hash.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;  ///< unknown text becomes its "<0xXX>" tokens, if all of them exist
};

/// Reused between pieces.
struct UnigramScratch {
  struct Node {
    double score;
    std::int64_t begin;  // of the best token that ends here; -1: none yet
    TokenId id;
  };
  std::string text;
  std::vector<Node> best;
  std::vector<std::pair<std::size_t, std::size_t>> spans;
};

class UnigramModel {
 public:
  /// Bounds the work at each position of a text.
  static constexpr std::size_t kMaxTokenBytes = 1024;

  /// One finite score a token. The vocabulary must outlive the model.
  static Result<UnigramModel> build(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options);

  /// Appends the ids of one piece, in linear time. The error is an unknown character where there is no unknown token.
  Status encode(std::u32string_view piece, UnigramScratch& scratch, std::vector<TokenId>& out) const;

 private:
  UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options)
      : vocabulary_(&vocabulary), scores_(std::move(scores)), options_(options) {}

  void build_trie(std::size_t total_bytes);
  Status find_best(UnigramScratch& scratch) const;
  void append_ids(std::string_view span, std::vector<TokenId>& out) const;

  const Vocabulary* vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  IntegerMap<std::uint32_t> edges_;  // (node << 8 | byte) -> node; the root is 0
  std::vector<TokenId> token_at_;    // by node, -1: no token ends there
};

}  // namespace vernier::text_internal
