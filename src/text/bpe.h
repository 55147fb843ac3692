// Byte-pair encoding with an ordered list of merges, over characters (byte-level vocabularies included: there each
// character stands for a byte).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/hash.h"
#include "text/merge_loop.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

struct BpeOptions {
  bool whole_first = false;                       ///< a piece that is itself a token is taken without merging
  bool byte_fallback = false;                     ///< a character without a token becomes its "<0xXX>" tokens
  bool fuse_unknown = false;                      ///< a run of unknown characters gives one unknown token
  std::optional<TokenId> unknown = std::nullopt;  ///< without it, unknown characters give nothing
};

/// Reused between pieces.
struct BpeScratch {
  std::vector<TokenId> symbols;  // -1: merged into the left neighbour
  std::vector<TokenId> merged;   // what merging each symbol with its right neighbour gives
  MergeLoopScratch loop;
};

class BpeModel {
 public:
  static constexpr std::size_t kMaxMerges = std::size_t{1} << 22U;
  using Merge = std::pair<std::string_view, std::string_view>;

  /// `merges` by rank. Errors name the merge by its number, from 1. The vocabulary must outlive the model.
  static Result<BpeModel> build(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options);

  /// Appends the ids of one piece. O(n log n).
  void encode(std::u32string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Merged {
    std::uint32_t rank;
    TokenId id;
  };
  explicit BpeModel(const Vocabulary& vocabulary, BpeOptions options) : vocabulary_(&vocabulary), options_(options) {}

  void add_symbols(std::u32string_view piece, std::vector<TokenId>& symbols) const;
  bool add_bytes(char32_t c, std::vector<TokenId>& symbols) const;

  const Vocabulary* vocabulary_;
  BpeOptions options_;
  IntegerMap<Merged> merges_;
};

}  // namespace vernier::text_internal
