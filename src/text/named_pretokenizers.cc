// The table's rows to steps.
#include "text/named_pretokenizers.h"

#include <utility>

#include "text/unicode.h"

namespace vernier::text_internal {

Status add_named_steps(const NamedPreTokenizer& named, PreTokenizer& pre_tokenizer) {
  for (const NamedStep& step : named.steps) {
    switch (step.kind) {
      case NamedStep::Kind::kEnd: break;
      case NamedStep::Kind::kDigits: pre_tokenizer.add(SplitClassStep{is_numeric, SplitBehavior::kIsolated}); break;
      case NamedStep::Kind::kPunctuation:
        pre_tokenizer.add(SplitClassStep{is_punctuation, SplitBehavior::kContiguous});
        break;
      case NamedStep::Kind::kSplit: {
        VN_ASSIGN(Regex regex, Regex::compile(step.pattern));
        pre_tokenizer.add(SplitStep{std::move(regex)});
        break;
      }
    }
  }
  return {};
}

}  // namespace vernier::text_internal
