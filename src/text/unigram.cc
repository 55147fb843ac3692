// Viterbi search from left to right, with the tokens in a trie.
#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

// An unknown character costs this much more than the worst token.
constexpr double kUnknownPenalty = 10;

void improve(UnigramScratch::Node& node, double score, std::size_t begin, TokenId id) {
  if (node.begin < 0 || score > node.score) node = {score, static_cast<std::int64_t>(begin), id};
}

}  // namespace

Result<UnigramModel> UnigramModel::build(const Vocabulary& vocabulary, std::vector<double> scores,
                                         UnigramOptions options) {
  UnigramModel model(vocabulary, std::move(scores), options);
  double lowest = std::numeric_limits<double>::infinity();
  std::size_t total_bytes = 0;
  for (std::size_t i = 0; i < model.scores_.size(); ++i) {
    if (!std::isfinite(model.scores_[i])) return fail(ErrorCode::kCorrupt, "score of token {} isn't finite", i);
    const std::size_t size = vocabulary.text(static_cast<TokenId>(i)).size();
    if (size > kMaxTokenBytes) {
      return fail(ErrorCode::kUnsupported, "unigram token {} has {} bytes, more than {}", i, size, kMaxTokenBytes);
    }
    total_bytes += size;
    lowest = std::min(lowest, model.scores_[i]);
  }
  model.unknown_score_ = lowest - kUnknownPenalty;
  model.build_trie(total_bytes);
  return model;
}

void UnigramModel::build_trie(std::size_t total_bytes) {
  edges_ = IntegerMap<std::uint32_t>(total_bytes);
  token_at_.assign(1, -1);
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary_->text(id).empty()) continue;
    std::uint32_t node = 0;
    for (const char byte : vocabulary_->text(id)) {
      const std::uint64_t key = std::uint64_t{node} << 8U | static_cast<unsigned char>(byte);
      if (edges_.insert(key, static_cast<std::uint32_t>(token_at_.size()))) token_at_.push_back(-1);
      node = *edges_.find(key);
    }
    if (token_at_[node] < 0) token_at_[node] = id;
  }
}

Status UnigramModel::find_best(UnigramScratch& scratch) const {
  const std::string_view text = scratch.text;
  auto& best = scratch.best;
  best.assign(text.size() + 1, {0, -1, -1});
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t char_size = decode_utf8(text, begin).size;
    const double here = best[begin].score;
    bool has_single = false;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size();) {
      const std::uint32_t* next = edges_.find(std::uint64_t{node} << 8U | static_cast<unsigned char>(text[end]));
      if (next == nullptr) break;
      node = *next;
      ++end;
      const TokenId id = token_at_[node];
      if (id < 0) continue;
      improve(best[end], here + scores_[static_cast<std::size_t>(id)], begin, id);
      has_single = has_single || end - begin == char_size;
    }
    if (!has_single) {
      if (!options_.unknown) {
        return fail(ErrorCode::kInvalidArgument,
                    "the text has a character that the vocabulary lacks ('{}') and there is no unknown token",
                    escape(text.substr(begin, char_size)));
      }
      improve(best[begin + char_size], here + unknown_score_, begin, *options_.unknown);
    }
    begin += char_size;
  }
  return {};
}

void UnigramModel::append_ids(std::string_view span, std::vector<TokenId>& out) const {
  if (const auto id = vocabulary_->find_in_model(span)) {
    out.push_back(*id);
    return;
  }
  const auto id_of = [&](char byte) { return vocabulary_->byte_ids()[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback && std::ranges::all_of(span, [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : span) out.push_back(id_of(byte));
  } else if (options_.unknown) {
    out.push_back(*options_.unknown);
  }
}

Status UnigramModel::encode(std::u32string_view piece, UnigramScratch& scratch, std::vector<TokenId>& out) const {
  scratch.text.clear();
  for (const char32_t c : piece) append_utf8(scratch.text, c);
  VN_TRY(find_best(scratch));
  auto& spans = scratch.spans;  // from right to left; neighbouring unknown ones are one
  spans.clear();
  bool last_unknown = false;
  for (std::size_t end = scratch.text.size(); end > 0;) {
    const UnigramScratch::Node& node = scratch.best[end];
    const auto begin = static_cast<std::size_t>(node.begin);
    const bool unknown = options_.unknown == node.id;
    if (unknown && last_unknown) {
      spans.back().first = begin;
    } else {
      spans.emplace_back(begin, end);
    }
    last_unknown = unknown;
    end = begin;
  }
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    append_ids(std::string_view(scratch.text).substr(span->first, span->second - span->first), out);
  }
  return {};
}

}  // namespace vernier::text_internal
