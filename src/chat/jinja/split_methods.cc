// String methods that take strings apart.
#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/builders.h"
#include "chat/jinja/string_methods.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

/// Pieces of a text, paid for as they come. Ignores what follows once the budget is exhausted.
class Pieces {
 public:
  explicit Pieces(Runtime& runtime) : runtime_(runtime) {}
  void push(std::string_view piece) {
    constexpr std::size_t kChunk = 64;
    if (!status_) return;
    if (items_.size() % kChunk == 0) status_ = charge_.grow(runtime_.budget, 2 * kChunk * sizeof(std::string_view));
    if (status_) items_.push_back(piece);
  }
  [[nodiscard]] std::vector<std::string_view>& items() { return items_; }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Runtime& runtime_;
  Charge charge_;
  Status status_;
  std::vector<std::string_view> items_;
};

/// The words between white space: at most `limit` cuts, counted from the left or the right.
void words(Pieces& pieces, std::string_view text, std::size_t limit, bool from_right) {
  std::size_t start = kNone;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char ch = decode_utf8(text, at);
    if (is_space(ch.code_point)) {
      if (start != kNone) pieces.push(text.substr(start, at - start));
      start = kNone;
    } else if (start == kNone) {
      start = at;
    }
    at += ch.size;
  }
  if (start != kNone) pieces.push(text.substr(start));
  auto& all = pieces.items();
  if (all.size() <= limit) return;
  // What is left over stays in one piece, with the white space in and behind it (before it, from the right).
  if (from_right) {
    const std::size_t first_kept = all.size() - limit;
    const char* const end = all[first_kept - 1].data() + all[first_kept - 1].size();
    const std::string_view rest(text.data(), static_cast<std::size_t>(end - text.data()));
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first_kept - 1));
    all.front() = rest;
  } else {
    const auto begin = static_cast<std::size_t>(all[limit].data() - text.data());
    all.resize(limit + 1);
    all.back() = text.substr(begin);
  }
}

Status cut(Runtime& runtime, Pieces& pieces, std::string_view text, std::string_view separator, std::size_t limit) {
  std::size_t at = 0;
  while (pieces.status() && pieces.items().size() < limit) {
    const std::size_t found = find_text(text, separator, at);
    if (found == kNone) break;
    pieces.push(text.substr(at, found - at));
    at = found + separator.size();
  }
  pieces.push(text.substr(at));
  return runtime.budget.spend();
}

Status cut_from_right(Runtime& runtime, Pieces& pieces, std::string_view text, std::string_view separator,
                      std::size_t limit) {
  while (pieces.status() && pieces.items().size() < limit) {
    VN_TRY(runtime.budget.spend_text(text.size()));  // each cut searches all that is left
    VN_ASSIGN(const std::size_t found, find_last(runtime, text, separator));
    if (found == kNone) break;
    pieces.push(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  pieces.push(text);
  std::reverse(pieces.items().begin(), pieces.items().end());
  return {};
}

Result<Value> split(Runtime& runtime, const Value& self, const Args& args, bool from_right) {
  VN_ASSIGN(const Bound bound, bind(args, "split", {"sep", "maxsplit"}));
  VN_ASSIGN(const std::int64_t most, integer_argument(bound[1], -1, "maxsplit"));
  const std::size_t limit = most < 0 ? kNone : static_cast<std::size_t>(most);
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  Pieces pieces(runtime);
  if (bound[0] == nullptr || bound[0]->is_none()) {
    words(pieces, self.text(), limit, from_right);
  } else {
    VN_ASSIGN(const std::string_view separator, string_argument(bound[0], {}, "separator"));
    if (separator.empty()) return error("empty separator");
    VN_TRY(from_right ? cut_from_right(runtime, pieces, self.text(), separator, limit)
                      : cut(runtime, pieces, self.text(), separator, limit));
  }
  VN_TRY(pieces.status());
  ListBuilder list(runtime);
  for (const std::string_view piece : pieces.items()) list.push_string(piece);
  return list.finish();
}

Result<Value> partition(Runtime& runtime, const Value& self, const Args& args, bool last) {
  VN_ASSIGN(const Bound bound, bind(args, "partition", {"sep"}, 1));
  VN_ASSIGN(const std::string_view separator, string_argument(bound[0], {}, "separator"));
  if (separator.empty()) return error("empty separator");
  const std::string_view text = self.text();
  VN_TRY(runtime.budget.spend_text(text.size()));
  std::size_t found = kNone;
  if (last) {
    VN_ASSIGN(found, find_last(runtime, text, separator));
  } else {
    found = find_text(text, separator);
  }
  ListBuilder list(runtime, SequenceType::kTuple);
  if (found != kNone) {
    list.push_string(text.substr(0, found));
    list.push_string(separator);
    list.push_string(text.substr(found + separator.size()));
  } else {
    list.push_string(last ? std::string_view() : text);
    list.push_string({});
    list.push_string(last ? text : std::string_view());
  }
  return list.finish();
}

}  // namespace

Result<Value> split_left(Runtime& runtime, const Value& self, const Args& args) {
  return split(runtime, self, args, false);
}
Result<Value> split_right(Runtime& runtime, const Value& self, const Args& args) {
  return split(runtime, self, args, true);
}

Result<Value> split_into_lines(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "splitlines", {"keepends"}));
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  ListBuilder list(runtime);
  for_each_line(self.text(), bound.flag(0), [&](std::string_view line) { list.push_string(line); });
  return list.finish();
}

Result<Value> partition_first(Runtime& runtime, const Value& self, const Args& args) {
  return partition(runtime, self, args, false);
}
Result<Value> partition_last(Runtime& runtime, const Value& self, const Args& args) {
  return partition(runtime, self, args, true);
}

}  // namespace vernier::jinja
