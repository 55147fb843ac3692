#include "checkpoint/module_list.h"

#include <algorithm>
#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace vernier {
namespace {

// A list is compared with every trunk module: a config may not turn that into work without end.
constexpr std::size_t kMaxPatterns = 1024;
constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMatchLimit = 10'000;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct DataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string_view parent_of(std::string_view module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : module.substr(0, dot + 1);
}

}  // namespace

struct ModuleList::Expression {
  std::unique_ptr<pcre2_code, CodeDeleter> code;

  static Result<Expression> compile(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Expression result;
    result.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                    PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
    if (!result.code) {
      return fail(ErrorCode::kCorrupt, "'re:{}' is no regular expression (at character {})", escape(pattern), offset);
    }
    return result;
  }

  [[nodiscard]] bool matches(std::string_view text) const {
    const std::unique_ptr<pcre2_match_context, ContextDeleter> context(pcre2_match_context_create(nullptr));
    const std::unique_ptr<pcre2_match_data, DataDeleter> data(pcre2_match_data_create(1, nullptr));
    if (!context || !data) return false;
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kMatchLimit);
    // 0: matched, with more groups than there is room for.
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(),
                       context.get()) >= 0;
  }
};

ModuleList::ModuleList() = default;
ModuleList::~ModuleList() = default;
ModuleList::ModuleList(ModuleList&&) noexcept = default;
ModuleList& ModuleList::operator=(ModuleList&&) noexcept = default;

std::string_view bare_module(std::string_view name) {
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string_view prefix : {std::string_view("model."), std::string_view("language_model.")}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      stripped = true;
    }
  }
  return name;
}

bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last '*' met, and where the text stood then
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Status ModuleList::add(std::string_view entry, Below below) {
  ++num_entries_;
  const bool is_expression = entry.starts_with("re:");
  const bool is_wildcard = !is_expression && entry.find_first_of("*?") != std::string_view::npos;
  if (is_expression || is_wildcard) {
    if (entry.size() > kMaxPatternBytes) {
      return fail(ErrorCode::kUnsupported, "a pattern of {} bytes; at most {} are read", entry.size(),
                  kMaxPatternBytes);
    }
    if (expressions_.size() + wildcards_.size() + wildcard_trees_.size() >= kMaxPatterns) {
      return fail(ErrorCode::kUnsupported, "more than {} patterns in one list", kMaxPatterns);
    }
  }
  if (is_expression) {
    VN_ASSIGN(Expression expression, Expression::compile(entry.substr(3)));
    expressions_.push_back(std::move(expression));
    return {};
  }
  const std::string name(bare_module(entry));
  std::string text = name;
  while (text.ends_with('*')) text.pop_back();
  if (!text.empty()) all_.push_back(text);
  if (!is_wildcard) {
    (below == Below::kYes ? trees_ : names_).insert(name);
  } else if (text.find_first_of("*?") == std::string::npos && text.size() < name.size()) {
    if (beginnings_.insert(text).second &&
        std::find(beginning_lengths_.begin(), beginning_lengths_.end(), text.size()) == beginning_lengths_.end()) {
      beginning_lengths_.push_back(text.size());
    }
  } else {
    (below == Below::kYes ? wildcard_trees_ : wildcards_).push_back(name);
  }
  return {};
}

bool ModuleList::matches(std::string_view module) const {
  const std::string_view bare = bare_module(module);
  if (!names_.empty() && names_.contains(std::string(bare))) return true;
  for (const std::size_t length : beginning_lengths_) {
    if (length <= bare.size() && beginnings_.contains(std::string(bare.substr(0, length)))) return true;
  }
  if (!trees_.empty()) {
    for (std::size_t end = bare.find('.');; end = bare.find('.', end + 1)) {
      if (trees_.contains(std::string(bare.substr(0, end)))) return true;
      if (end == std::string_view::npos) break;
    }
  }
  for (const std::string& pattern : wildcards_) {
    if (matches_wildcards(pattern, bare)) return true;
  }
  for (const std::string& pattern : wildcard_trees_) {
    if (matches_wildcards(pattern, bare) || matches_wildcards(pattern + ".*", bare)) return true;
  }
  if (expressions_.empty()) return false;
  // Expressions are written for one of the prefixes in use.
  const std::array<std::string, 4> spellings = {std::string(module), std::string(bare), "model." + std::string(bare),
                                                "model.language_model." + std::string(bare)};
  return std::any_of(expressions_.begin(), expressions_.end(), [&](const Expression& expression) {
    return std::any_of(spellings.begin(), spellings.end(),
                       [&](const std::string& spelling) { return expression.matches(spelling); });
  });
}

bool ModuleList::suggests(std::string_view module) const {
  const std::string_view bare = bare_module(module);
  const std::string_view parent = parent_of(bare);
  const std::string_view last = bare.substr(parent.size());
  // The names that other engines give to projections which they fuse.
  std::string fused;
  if (last == "q_proj" || last == "k_proj" || last == "v_proj") fused = std::string(parent) + "qkv_proj";
  if (last == "gate_proj" || last == "up_proj") fused = std::string(parent) + "gate_up_proj";
  return std::any_of(all_.begin(), all_.end(), [&](const std::string& entry) {
    if (bare.find(entry) != std::string_view::npos) return true;
    if (!fused.empty() && entry.find(fused) != std::string::npos) return true;
    // A part of a stacked bank ("experts.3.up_proj"), a name that this one is the beginning of ("in_proj_qkvz"), or
    // another projection of a linear attention: exporters list those of its output only.
    if (parent.empty() || !entry.starts_with(parent)) return false;
    return parent.ends_with(".experts.") || parent.ends_with(".linear_attn.") || entry.starts_with(bare);
  });
}

}  // namespace vernier
