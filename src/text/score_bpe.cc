// The merge loop by scores. Symbols are spans of the piece, since a character need not be a token to be merged.
#include "text/score_bpe.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/utf8.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

/// A number that is lower the higher a finite score is: its bits as an integer, with the sign handled.
std::uint32_t cost_of(float score) {
  constexpr std::uint32_t kSign = 0x80000000;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 becomes 0
  const std::uint32_t ascending = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return ~ascending;
}

}  // namespace

Result<ScoreBpeModel> ScoreBpeModel::build(const Vocabulary& vocabulary, const std::vector<float>& scores,
                                           std::optional<TokenId> unknown) {
  if (scores.size() != vocabulary.size()) {
    return fail(ErrorCode::kCorrupt, "{} scores for {} tokens", scores.size(), vocabulary.size());
  }
  ScoreBpeModel model(vocabulary, unknown);
  model.costs_.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i])) return fail(ErrorCode::kCorrupt, "score of token {} is {}", i, scores[i]);
    model.costs_.push_back(cost_of(scores[i]));
  }
  return model;
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
  auto& sizes = scratch.sizes;
  scratch.text.clear();
  scratch.begins.clear();
  sizes.clear();
  for (const char32_t c : piece) {
    scratch.begins.push_back(static_cast<std::uint32_t>(scratch.text.size()));
    append_utf8(scratch.text, c);
    sizes.push_back(static_cast<std::uint32_t>(scratch.text.size()) - scratch.begins.back());
  }
  const std::string_view text = scratch.text;
  const auto cost = [&](std::int32_t left, std::int32_t right) {
    const std::uint32_t size = sizes[static_cast<std::size_t>(left)] + sizes[static_cast<std::size_t>(right)];
    if (size > vocabulary_->longest_in_model()) return kNoMerge;
    const auto id = vocabulary_->find_in_model(text.substr(scratch.begins[static_cast<std::size_t>(left)], size));
    return id ? costs_[static_cast<std::size_t>(*id)] : kNoMerge;
  };
  const auto merge = [&](std::int32_t left, std::int32_t right) {
    sizes[static_cast<std::size_t>(left)] += sizes[static_cast<std::size_t>(right)];
    sizes[static_cast<std::size_t>(right)] = 0;
  };
  merge_all(sizes.size(), scratch.loop, cost, merge);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) append_ids(text.substr(scratch.begins[i], sizes[i]), out);
  }
}

}  // namespace vernier::text_internal
