// Characters to symbols, and their merges by rank.
#include "text/bpe.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

Result<BpeModel> BpeModel::build(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options) {
  if (merges.size() > kMaxMerges) {
    return fail(ErrorCode::kUnsupported, "{} merges, more than {}", merges.size(), kMaxMerges);
  }
  BpeModel model(vocabulary, options);
  model.merges_ = IntegerMap<Merged>(merges.size());
  std::string joined;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    joined.assign(left).append(right);
    const auto left_id = vocabulary.find_in_model(left);
    const auto right_id = vocabulary.find_in_model(right);
    const auto merged_id = vocabulary.find_in_model(joined);
    if (left.empty() || right.empty()) return fail(ErrorCode::kCorrupt, "merge {} has an empty side", i + 1);
    if (!left_id || !right_id || !merged_id) {
      const std::string_view missing = !left_id ? left : !right_id ? right : std::string_view(joined);
      return fail(ErrorCode::kCorrupt, "merge {} ('{}' '{}'): '{}' isn't in the vocabulary", i + 1, escape(left),
                  escape(right), escape(missing));
    }
    if (!model.merges_.insert(pair_key(*left_id, *right_id), {static_cast<std::uint32_t>(i), *merged_id})) {
      return fail(ErrorCode::kCorrupt, "merge {} ('{}' '{}') is listed twice", i + 1, escape(left), escape(right));
    }
  }
  return model;
}

bool BpeModel::add_bytes(char32_t c, std::vector<TokenId>& symbols) const {
  std::string bytes;
  append_utf8(bytes, c);
  const auto id_of = [&](char byte) { return vocabulary_->byte_ids()[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(bytes, [&](char byte) { return id_of(byte) < 0; })) return false;
  for (const char byte : bytes) symbols.push_back(id_of(byte));
  return true;
}

void BpeModel::add_symbols(std::u32string_view piece, std::vector<TokenId>& symbols) const {
  // An unknown token waits for its run to end. That the bytes of a later character overtake it is what the library
  // does that published ids come from.
  bool unknown_waits = false;
  for (const char32_t c : piece) {
    if (const auto id = vocabulary_->find_in_model(c)) {
      if (unknown_waits) symbols.push_back(*options_.unknown);
      unknown_waits = false;
      symbols.push_back(*id);
    } else if (options_.byte_fallback && add_bytes(c, symbols)) {
      continue;
    } else if (options_.unknown) {
      if (unknown_waits && !options_.fuse_unknown) symbols.push_back(*options_.unknown);
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols.push_back(*options_.unknown);
}

void BpeModel::encode(std::u32string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (options_.whole_first) {
    if (const auto id = vocabulary_->find_in_model(encode_text(piece))) {
      out.push_back(*id);
      return;
    }
  }
  auto& symbols = scratch.symbols;
  auto& merged = scratch.merged;
  symbols.clear();
  add_symbols(piece, symbols);
  merged.resize(symbols.size());
  const auto cost = [&](std::int32_t left, std::int32_t right) {
    const Merged* found =
        merges_.find(pair_key(symbols[static_cast<std::size_t>(left)], symbols[static_cast<std::size_t>(right)]));
    if (found == nullptr) return kNoMerge;
    merged[static_cast<std::size_t>(left)] = found->id;
    return found->rank;
  };
  const auto merge = [&](std::int32_t left, std::int32_t right) {
    symbols[static_cast<std::size_t>(left)] = merged[static_cast<std::size_t>(left)];
    symbols[static_cast<std::size_t>(right)] = -1;
  };
  merge_all(symbols.size(), scratch.loop, cost, merge);
  for (const TokenId symbol : symbols) {
    if (symbol >= 0) out.push_back(symbol);
  }
}

}  // namespace vernier::text_internal
