// What Split and Replace look for: a literal text or a regular expression.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"

namespace vernier::text_internal {

using TextPattern = std::variant<std::u32string, Regex>;

/// All matches from left to right, disjoint. A literal must not be empty.
Result<std::vector<Regex::Match>> find_matches(const TextPattern& pattern, std::u32string_view text,
                                               RegexScratch& scratch);

}  // namespace vernier::text_internal
