// The merge loop by scores. Symbols are spans of the piece, since a character need not be a token to be merged.
#include "text/score_bpe.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

/// Heap order: the highest score on top, of equal ones the leftmost.
bool later(const ScoreBpeScratch::Pair& a, const ScoreBpeScratch::Pair& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

}  // namespace

Result<ScoreBpeModel> ScoreBpeModel::build(const Vocabulary& vocabulary, std::vector<float> scores,
                                           std::optional<TokenId> unknown) {
  if (scores.size() != vocabulary.size()) {
    return fail(ErrorCode::kCorrupt, "{} scores for {} tokens", scores.size(), vocabulary.size());
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i])) return fail(ErrorCode::kCorrupt, "score of token {} is {}", i, scores[i]);
  }
  return ScoreBpeModel(vocabulary, std::move(scores), unknown);
}

void ScoreBpeModel::push_pair(ScoreBpeScratch& scratch, std::int32_t left) const {
  const ScoreBpeScratch::Symbol& a = scratch.symbols[static_cast<std::size_t>(left)];
  if (a.next < 0) return;
  const std::uint32_t size = a.size + scratch.symbols[static_cast<std::size_t>(a.next)].size;
  if (size > vocabulary_->longest_in_model()) return;
  const auto id = vocabulary_->find_in_model(std::string_view(scratch.text).substr(a.begin, size));
  if (id) scratch.heap.push_back({scores_[static_cast<std::size_t>(*id)], left, size});
}

void ScoreBpeModel::append_ids(std::string_view symbol, std::vector<TokenId>& out) const {
  if (const auto id = vocabulary_->find_in_model(symbol)) {
    out.push_back(*id);
    return;
  }
  const auto id_of = [&](char byte) { return vocabulary_->byte_ids()[static_cast<unsigned char>(byte)]; };
  if (std::ranges::all_of(symbol, [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : symbol) out.push_back(id_of(byte));
  } else if (unknown_) {
    out.push_back(*unknown_);
  }
}

void ScoreBpeModel::encode(std::u32string_view piece, ScoreBpeScratch& scratch, std::vector<TokenId>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  scratch.text.clear();
  symbols.clear();
  heap.clear();
  const auto count = static_cast<std::int32_t>(piece.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::uint32_t>(scratch.text.size());
    append_utf8(scratch.text, piece[static_cast<std::size_t>(i)]);
    symbols.push_back(
        {begin, static_cast<std::uint32_t>(scratch.text.size()) - begin, i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < count; ++i) push_pair(scratch, i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const ScoreBpeScratch::Pair pair = heap.back();
    heap.pop_back();
    ScoreBpeScratch::Symbol& left = symbols[static_cast<std::size_t>(pair.left)];
    if (left.size == 0 || left.next < 0) continue;
    ScoreBpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (left.size + right.size != pair.size) continue;  // one of the two has grown since
    left.size = pair.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = pair.left;
    for (const std::int32_t changed : {left.previous, pair.left}) {
      if (changed < 0) continue;
      const std::size_t before = heap.size();
      push_pair(scratch, changed);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  for (const ScoreBpeScratch::Symbol& symbol : symbols) {
    if (symbol.size > 0) append_ids(std::string_view(scratch.text).substr(symbol.begin, symbol.size), out);
  }
}

}  // namespace vernier::text_internal
