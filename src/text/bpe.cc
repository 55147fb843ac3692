// The merge loop: a linked list of symbols and a heap of pairs whose stale entries are skipped.
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

/// Heap order: the lowest rank on top, of equal ones the leftmost.
bool later(const BpeScratch::Pair& a, const BpeScratch::Pair& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
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

const BpeModel::Merged* BpeModel::find_merge(TokenId left, TokenId right) const {
  return merges_.find(pair_key(left, right));
}

bool BpeModel::add_bytes(char32_t c, std::vector<BpeScratch::Symbol>& symbols) const {
  std::string bytes;
  append_utf8(bytes, c);
  const auto id_of = [&](char byte) { return vocabulary_->byte_ids()[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(bytes, [&](char byte) { return id_of(byte) < 0; })) return false;
  for (const char byte : bytes) symbols.push_back({id_of(byte), 0, 0});
  return true;
}

void BpeModel::add_symbols(std::u32string_view piece, std::vector<BpeScratch::Symbol>& symbols) const {
  // An unknown token waits for its run to end. That the bytes of a later character overtake it is what the library
  // does that published ids come from.
  bool unknown_waits = false;
  for (const char32_t c : piece) {
    if (const auto id = vocabulary_->find_in_model(c)) {
      if (unknown_waits) symbols.push_back({*options_.unknown, 0, 0});
      unknown_waits = false;
      symbols.push_back({*id, 0, 0});
    } else if (options_.byte_fallback && add_bytes(c, symbols)) {
      continue;
    } else if (options_.unknown) {
      if (unknown_waits && !options_.fuse_unknown) symbols.push_back({*options_.unknown, 0, 0});
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols.push_back({*options_.unknown, 0, 0});
}

void BpeModel::push_pair(BpeScratch& scratch, std::int32_t left) const {
  const std::int32_t right = scratch.symbols[static_cast<std::size_t>(left)].next;
  if (right < 0) return;
  const Merged* merged = find_merge(scratch.symbols[static_cast<std::size_t>(left)].id,
                                    scratch.symbols[static_cast<std::size_t>(right)].id);
  if (merged != nullptr) scratch.heap.push_back({merged->rank, left, merged->id});
}

void BpeModel::encode(std::u32string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (options_.whole_first) {
    if (const auto id = vocabulary_->find_in_model(encode_text(piece))) {
      out.push_back(*id);
      return;
    }
  }
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  add_symbols(piece, symbols);
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i < count; ++i) push_pair(scratch, i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Pair pair = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<std::size_t>(pair.left)];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    const Merged* merged = find_merge(left.id, right.id);
    if (merged == nullptr || merged->rank != pair.rank) continue;  // one of the two has changed since
    left.id = pair.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = pair.left;
    for (const std::int32_t changed : {left.previous, pair.left}) {
      if (changed < 0) continue;
      const std::size_t before = heap.size();
      push_pair(scratch, changed);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  for (const BpeScratch::Symbol& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

}  // namespace vernier::text_internal
