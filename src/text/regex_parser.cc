// Regular-expression syntax (the part of Oniguruma's Ruby syntax that tokenizers use) to a tree.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "text/regex_program.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

constexpr std::size_t kMaxPatternLength = 4096;
constexpr int kMaxDepth = 32;
constexpr std::uint32_t kMaxRepeats = 1000;

using Kind = RegexNode::Kind;

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Adds the other case of each ASCII letter, and the two characters that Unicode folds to one.
void fold_ascii(CodePointSet& set) {
  for (char32_t lower = 'a'; lower <= 'z'; ++lower) {
    const char32_t upper = lower - 'a' + 'A';
    if (!set.contains(lower) && !set.contains(upper)) continue;
    set.add(lower);
    set.add(upper);
    if (lower == 's') set.add(0x17F);
    if (lower == 'k') set.add(0x212A);
  }
}

class Parser {
 public:
  explicit Parser(std::u32string pattern) : pattern_(std::move(pattern)) {}

  Result<RegexTree> parse() {
    VN_ASSIGN(tree_.root, parse_alternation(0, false));
    if (!at_end()) return corrupt("unmatched ')'");
    return std::move(tree_);
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= pattern_.size(); }
  [[nodiscard]] char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : U'\0';
  }
  bool take(std::u32string_view text) {
    if (std::u32string_view(pattern_).substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  [[nodiscard]] tl::unexpected<Error> corrupt(std::string_view what) const {
    return fail(ErrorCode::kCorrupt, "regular expression: {} at character {}", what, at_);
  }
  [[nodiscard]] tl::unexpected<Error> unsupported(std::string_view what) const {
    return fail(ErrorCode::kUnsupported, "regular expression: {} at character {} isn't supported", what, at_);
  }

  std::uint32_t add_node(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }
  std::uint32_t add_set(CodePointSet set) {
    tree_.sets.push_back(std::move(set));
    RegexNode node;
    node.kind = Kind::kSet;
    node.set = static_cast<std::uint32_t>(tree_.sets.size() - 1);
    return add_node(std::move(node));
  }
  std::uint32_t add_assertion(Kind kind, bool negative = false) {
    RegexNode node;
    node.kind = kind;
    node.negative = negative;
    return add_node(std::move(node));
  }

  Result<std::uint32_t> parse_alternation(int depth, bool fold) {
    if (depth > kMaxDepth) return unsupported("nesting deeper than 32");
    RegexNode node;
    node.kind = Kind::kAlternation;
    do {
      VN_ASSIGN(const std::uint32_t branch, parse_concatenation(depth, fold));
      node.children.push_back(branch);
    } while (take(U"|"));
    return node.children.size() == 1 ? node.children.front() : add_node(std::move(node));
  }

  Result<std::uint32_t> parse_concatenation(int depth, bool fold) {
    RegexNode node;
    while (!at_end() && peek() != '|' && peek() != ')') {
      VN_ASSIGN(std::uint32_t item, parse_atom(depth, fold));
      VN_ASSIGN(item, parse_quantifier(item));
      node.children.push_back(item);
    }
    return node.children.size() == 1 ? node.children.front() : add_node(std::move(node));
  }

  Result<std::uint32_t> parse_atom(int depth, bool fold) {
    const char32_t c = peek();
    switch (c) {
      case '(': return parse_group(depth, fold);
      case '[': return parse_class_atom(depth, fold);
      case '\\': return parse_escape_atom(fold);
      case '.': {
        ++at_;
        CodePointSet set;
        set.add(U'\n');
        set.invert();
        return add_set(std::move(set));
      }
      case '^': ++at_; return add_assertion(Kind::kLineBegin);
      case '$': ++at_; return add_assertion(Kind::kLineEnd);
      case '*':
      case '+':
      case '?': return corrupt("a quantifier without something to repeat");
      default: ++at_; return add_literal(c, fold);
    }
  }

  Result<std::uint32_t> add_literal(char32_t c, bool fold) {
    CodePointSet set;
    set.add(c);
    if (fold) VN_TRY(fold_case(set));
    return add_set(std::move(set));
  }

  Status fold_case(CodePointSet& set) const {
    for (const CodePointSet::Range& range : set.ranges()) {
      for (char32_t c = std::max<char32_t>(range.first, 0x80); c <= range.last; ++c) {
        const GeneralCategory category = general_category(c);
        if (category <= GeneralCategory::kLt) return unsupported("case-insensitive matching beyond ASCII");
      }
    }
    fold_ascii(set);
    return {};
  }

  Result<std::uint32_t> parse_group(int depth, bool fold) {
    ++at_;
    RegexNode look;
    look.kind = Kind::kLookahead;
    bool is_look = false;
    if (peek() == '?') {
      if (take(U"?:")) {
        // Plain group.
      } else if (take(U"?i:")) {
        fold = true;
      } else if (take(U"?i)")) {
        return parse_rest_folded(depth);
      } else if (take(U"?=") || take(U"?!")) {
        is_look = true;
        look.negative = pattern_[at_ - 1] == '!';
      } else {
        return unsupported("group '(" + escape(encode_text(std::u32string_view(pattern_).substr(at_, 3))) + "'");
      }
    }
    VN_ASSIGN(const std::uint32_t inner, parse_alternation(depth + 1, fold));
    if (!take(U")")) return corrupt("'(' without ')'");
    if (!is_look) return inner;
    look.children.push_back(inner);
    return add_node(std::move(look));
  }

  /// "(?i)": what follows, up to the end of the group around it, belongs to it, alternatives included.
  Result<std::uint32_t> parse_rest_folded(int depth) { return parse_alternation(depth + 1, true); }

  Result<std::uint32_t> parse_quantifier(std::uint32_t item) {
    RegexNode node;
    node.kind = Kind::kRepeat;
    bool braces = false;
    if (take(U"*")) {
      node.max = kUnboundedRepeats;
    } else if (take(U"+")) {
      node.min = 1;
      node.max = kUnboundedRepeats;
    } else if (take(U"?")) {
      node.max = 1;
    } else if (peek() == '{') {
      VN_ASSIGN(braces, parse_braces(node));
      if (!braces) return item;
    } else {
      return item;
    }
    const Kind kind = tree_.nodes[item].kind;
    if (kind >= Kind::kLookahead) return unsupported("a quantifier of an assertion");
    if (braces && (peek() == '+' || (peek() == '?' && node.min == node.max))) {
      return unsupported("a quantifier of a quantifier");
    }
    if (take(U"?")) node.mode = RepeatMode::kLazy;
    if (!braces && node.mode == RepeatMode::kGreedy && take(U"+")) {
      if (kind != Kind::kSet) return unsupported("a possessive quantifier of more than one character");
      node.mode = RepeatMode::kPossessive;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') return unsupported("a quantifier of a quantifier");
    node.children.push_back(item);
    return add_node(std::move(node));
  }

  /// {n}, {n,}, {,m} or {n,m}; anything else beginning with a brace is literal text (false, nothing consumed).
  Result<bool> parse_braces(RegexNode& node) {
    const std::size_t begin = at_;
    ++at_;
    const std::optional<std::uint32_t> low = parse_number();
    const bool comma = take(U",");
    const std::optional<std::uint32_t> high = comma ? parse_number() : low;
    if (!take(U"}") || (!low && !high)) {
      at_ = begin;
      return false;
    }
    node.min = low.value_or(0);
    node.max = high.value_or(kUnboundedRepeats);
    if (node.min > kMaxRepeats || (node.max != kUnboundedRepeats && node.max > kMaxRepeats)) {
      return unsupported("a repetition of more than 1000");
    }
    if (node.min > node.max) return corrupt("a repetition whose minimum is above its maximum");
    return true;
  }

  std::optional<std::uint32_t> parse_number() {
    std::optional<std::uint32_t> value;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min<std::uint32_t>(value.value_or(0) * 10 + static_cast<std::uint32_t>(peek() - '0'), 1000000);
      ++at_;
    }
    return value;
  }

  Result<std::uint32_t> parse_escape_atom(bool fold) {
    const char32_t kind = peek(1);
    switch (kind) {
      case 'A': at_ += 2; return add_assertion(Kind::kTextBegin);
      case 'z': at_ += 2; return add_assertion(Kind::kTextEnd);
      case 'b':
      case 'B': at_ += 2; return add_assertion(Kind::kWordBoundary, kind == 'B');
      default: break;
    }
    CodePointSet set;
    VN_ASSIGN(const std::optional<char32_t> single, parse_escape(set));
    if (single) set.add(*single);
    if (fold) VN_TRY(fold_case(set));
    return add_set(std::move(set));
  }

  /// An escape that stands for characters: either one (returned) or a set (added to `set`).
  Result<std::optional<char32_t>> parse_escape(CodePointSet& set) {
    ++at_;
    if (at_end()) return corrupt("a backslash at the end");
    const char32_t c = pattern_[at_++];
    constexpr std::u32string_view kNames = U"rntfvae";
    constexpr std::u32string_view kValues = U"\r\n\t\f\v\a\x1B";
    if (const std::size_t at = kNames.find(c); at != std::u32string_view::npos) return kValues[at];
    CodePointSet found;
    switch (c) {
      case 's':
      case 'S': found = CodePointSet::white_space(); break;
      case 'd':
      case 'D': found = *CodePointSet::of_category("Nd"); break;
      case 'w':
      case 'W': found = CodePointSet::word(); break;
      case 'p':
      case 'P': {
        VN_ASSIGN(found, parse_property());
        break;
      }
      case 'x':
      case 'u': return parse_hex(c);
      default:
        if (c >= 0x80 || is_ascii_letter(c) || is_numeric(c)) {
          --at_;
          return unsupported("escape '\\" + escape(encode_text(pattern_.substr(at_, 1))) + "'");
        }
        return c;
    }
    if (c == 'S' || c == 'D' || c == 'W' || c == 'P') found.invert();
    set.add(found);
    return std::nullopt;
  }

  Result<CodePointSet> parse_property() {
    if (!take(U"{")) return corrupt("\\p without '{'");
    const bool negative = take(U"^");
    const std::size_t close = pattern_.find(U'}', at_);
    if (close == std::u32string::npos) return corrupt("\\p{ without '}'");
    const std::string name = encode_text(std::u32string_view(pattern_).substr(at_, close - at_));
    std::optional<CodePointSet> set = CodePointSet::of_category(name);
    if (!set) return unsupported("property '" + escape(name) + "' (only general categories are known)");
    at_ = close + 1;
    if (negative) set->invert();
    return *std::move(set);
  }

  Result<std::optional<char32_t>> parse_hex(char32_t kind) {
    const bool braces = kind == 'x' && take(U"{");
    const std::size_t max_digits = braces ? 8 : kind == 'x' ? 2 : 4;
    char32_t value = 0;
    std::size_t digits = 0;
    for (; digits < max_digits; ++digits, ++at_) {
      const char32_t c = peek();
      const bool decimal = c >= '0' && c <= '9';
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!decimal && !letter) break;
      value = value * 16 + (decimal ? c - '0' : (c | 0x20U) - 'a' + 10);
    }
    const bool well_formed = digits > 0 && (kind == 'x' || digits == 4) && (!braces || take(U"}"));
    if (!well_formed || value > CodePointSet::kMaxCodePoint) return corrupt("a malformed hexadecimal escape");
    return value;
  }

  Result<std::uint32_t> parse_class_atom(int depth, bool fold) {
    VN_ASSIGN(CodePointSet set, parse_class(depth, fold));
    return add_set(std::move(set));
  }

  /// "[...]" with nested classes and &&, whose operands are the unions around it.
  Result<CodePointSet> parse_class(int depth, bool fold) {
    if (depth > kMaxDepth) return unsupported("nesting deeper than 32");
    ++at_;
    const bool negative = take(U"^");
    CodePointSet set;
    std::optional<CodePointSet> left;
    bool first = true;
    while (first || peek() != ']') {
      if (at_end()) return corrupt("'[' without ']'");
      if (first && peek() == ']') return unsupported("']' at the beginning of a class");
      first = false;
      if (take(U"&&")) {
        if (left) set.intersect(*left);
        left = std::exchange(set, CodePointSet());
        continue;
      }
      VN_TRY(parse_class_item(depth, fold, set));
    }
    ++at_;
    if (left) set.intersect(*left);
    if (fold) VN_TRY(fold_case(set));
    if (negative) set.invert();
    return set;
  }

  Status parse_class_item(int depth, bool fold, CodePointSet& set) {
    if (peek() == '[') {
      if (peek(1) == ':') return unsupported("a POSIX class '[:'");
      VN_ASSIGN(const CodePointSet inner, parse_class(depth + 1, fold));
      set.add(inner);
      return {};
    }
    VN_ASSIGN(const std::optional<char32_t> first, parse_class_character(set));
    if (peek() != '-' || peek(1) == ']' || at_ + 1 >= pattern_.size()) {
      if (first) set.add(*first);
      return {};
    }
    if (!first || peek(1) == '[') return unsupported("a '-' beside a class within a class");
    ++at_;
    VN_ASSIGN(const std::optional<char32_t> last, parse_class_character(set));
    if (!last) return unsupported("a '-' beside a class within a class");
    if (*last < *first) return corrupt("a range that ends before it begins");
    set.add(*first, *last);
    return {};
  }

  Result<std::optional<char32_t>> parse_class_character(CodePointSet& set) {
    if (peek() == '\\') {
      if (peek(1) == 'b' || peek(1) == 'B') return unsupported("escape '\\b' within a class");
      return parse_escape(set);
    }
    return pattern_[at_++];
  }

  std::u32string pattern_;
  std::size_t at_ = 0;
  RegexTree tree_;
};

}  // namespace

Result<RegexTree> parse_regex(std::string_view pattern) {
  if (pattern.size() > 4 * kMaxPatternLength) {
    return fail(ErrorCode::kUnsupported, "regular expression of {} bytes, more than {}", pattern.size(),
                4 * kMaxPatternLength);
  }
  std::u32string text = decode_text(pattern);
  if (text.size() > kMaxPatternLength) {
    return fail(ErrorCode::kUnsupported, "regular expression of {} characters, more than {}", text.size(),
                kMaxPatternLength);
  }
  return Parser(std::move(text)).parse();
}

}  // namespace vernier::text_internal
