#include "checkpoint/leftovers.h"

namespace vernier {
namespace {

constexpr std::size_t kMaxNamed = 10;

/// The reason of the first rule that fits, or null.
const std::string* find_reason(std::span<const IgnoreRule> rules, std::string_view name) {
  for (const IgnoreRule& rule : rules) {
    if (matches_ignore_pattern(rule.pattern, name)) return &rule.reason;
  }
  return nullptr;
}

/// The problem with a scale that no weight took.
Error stray_scale(const ResolveInput& input, const TensorGroups& groups, std::uint32_t index) {
  const TensorRecord& scale = input.records[index];
  const TensorParts parts = groups.parts(groups.stem(index));
  const std::uint32_t weight = codes_of(parts);
  if (weight == kNoTensor) {
    return Error{ErrorCode::kCorrupt, fmt::format("{} is a scale, but its weight is missing", label(scale)), {}};
  }
  return Error{ErrorCode::kCorrupt,
               fmt::format("{} is a scale of '{}', but {} takes no such scale", label(scale),
                           escape(input.records[weight].name), input.records[weight].type_name),
               {}};
}

}  // namespace

bool matches_ignore_pattern(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  while (!pattern.empty()) {
    if (pattern == "*") return true;
    if (pattern.starts_with("{n}")) {
      const std::size_t begin = at;
      while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
      if (at == begin) return false;
      pattern.remove_prefix(3);
      continue;
    }
    if (at == name.size() || name[at] != pattern.front()) return false;
    ++at;
    pattern.remove_prefix(1);
  }
  return at == name.size();
}

Status refuse_foreign(const ResolveInput& input, const TensorGroups& groups) {
  if (!groups.any(TensorPart::kForeign)) return {};
  for (std::uint32_t i = 0; i < input.records.size(); ++i) {
    const TensorRecord& record = input.records[i];
    if (groups.part(i) != TensorPart::kForeign || find_reason(input.ignore, record.name) != nullptr) continue;
    return fail(ErrorCode::kUnsupported, "{} belongs to a {} quantisation, which Vernier doesn't run", label(record),
                foreign_producer(record.name));
  }
  return {};
}

void account_leftovers(const ResolveInput& input, const TensorGroups& groups, Ledger& ledger) {
  std::string unknown;
  std::size_t num_unknown = 0;
  for (std::uint32_t i = 0; i < input.records.size(); ++i) {
    if (!ledger.is_open(i)) continue;
    const TensorRecord& record = input.records[i];
    if (const std::string* reason = find_reason(input.ignore, record.name); reason != nullptr) {
      ledger.ignore(i, *reason);
      continue;
    }
    const TensorPart part = groups.part(i);
    if (part == TensorPart::kInputScale || part == TensorPart::kCacheScale) {
      ledger.ignore(i, part == TensorPart::kInputScale ? "input-scale" : "kv-scale");
      continue;
    }
    if (is_weight_scale(part)) {
      ledger.refuse(i, stray_scale(input, groups, i));
      continue;
    }
    if (!input.options.lenient) {
      ledger.refuse(i, Error{ErrorCode::kCorrupt,
                             fmt::format("{} {} {} is unknown to this model: it may change the answer", label(record),
                                         record.type_name, shape_text(record.shape)),
                             "--lenient reads past unknown tensors"});
      continue;
    }
    ledger.ignore(i, "unknown");
    if (num_unknown++ < kMaxNamed) unknown += (unknown.empty() ? "'" : ", '") + escape(record.name) + "'";
  }
  if (num_unknown == 0) return;
  ledger.warn(fmt::format("{} unknown tensor{} read past: {}{}", num_unknown, num_unknown == 1 ? " is" : "s are",
                          unknown, num_unknown > kMaxNamed ? ", ..." : ""));
}

std::string dialect_of(const ResolveInput& input, const TensorGroups& groups) {
  if (input.gguf) return "gguf";
  if (!input.config->dialect().empty()) return input.config->dialect();
  if (groups.any(TensorPart::kBlocks)) return "gpt-oss";
  if (groups.any(TensorPart::kPacked)) return "compressed-tensors";
  if (groups.any(TensorPart::kInverseScale)) return "fp8";
  if (groups.any(TensorPart::kMultiplier) || groups.any(TensorPart::kScale)) return "modelopt";
  return "plain";
}

}  // namespace vernier
