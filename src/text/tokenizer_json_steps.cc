// Reads normalisers, pre-tokenizers and decoders. Sequences may nest; their depth is bounded by the JSON parser.
#include "text/tokenizer_json_steps.h"

#include <array>
#include <string>
#include <utility>

#include "text/json_fields.h"
#include "text/named_pretokenizers.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

// Enough for any model, and a bound on what one text can cost.
constexpr std::size_t kMaxSteps = 64;

/// Calls `add` (part, its type) for a part, or for the parts of a sequence in order.
template <class Add>
Status for_each_part(const Json& json, std::string_view where, std::string_view list_key, const Add& add) {
  if (json.is_null()) return {};
  VN_ASSIGN(const std::string type, string_field(json, "type", where));
  if (type != "Sequence") return add(json, type);
  VN_ASSIGN(const JsonArray* parts, array_field(json, list_key, where));
  for (const Json& part : *parts) VN_TRY(for_each_part(part, where, list_key, add));
  return {};
}

tl::unexpected<Error> unsupported(std::string_view where, std::string_view type, std::string_view known) {
  return fail(ErrorCode::kUnsupported, "{} '{}' isn't supported (known: {})", where, escape(type), known);
}

/// {"String": "..."} or {"Regex": "..."}.
Result<TextPattern> parse_pattern(const Json& json, std::string_view where) {
  VN_ASSIGN(const Json* pattern, required_field(json, "pattern", where));
  if (const Json* regex = pattern->find("Regex"); regex != nullptr && regex->is_string()) {
    VN_ASSIGN(Regex compiled, Regex::compile(regex->as_string()));
    return compiled;
  }
  const Json* literal = pattern->find("String");
  if (literal == nullptr || !literal->is_string()) {
    return fail(ErrorCode::kCorrupt, "{}.pattern has neither a String nor a Regex", where);
  }
  if (literal->as_string().empty()) return fail(ErrorCode::kUnsupported, "{}.pattern is an empty String", where);
  return decode_text(literal->as_string());
}

Result<ReplaceStep> parse_replace(const Json& json, std::string_view where) {
  VN_ASSIGN(TextPattern pattern, parse_pattern(json, where));
  VN_ASSIGN(const std::string content, string_field(json, "content", where));
  return ReplaceStep{std::move(pattern), decode_text(content)};
}

Result<char32_t> character_field(const Json& json, std::string_view key, std::string_view where) {
  VN_ASSIGN(const std::string text, string_field(json, key, where));
  const std::u32string characters = decode_text(text);
  if (characters.size() != 1) {
    return fail(ErrorCode::kCorrupt, "{}.{} is '{}', expected one character", where, key, escape(text));
  }
  return characters.front();
}

Result<SplitBehavior> parse_behavior(const Json& json, std::string_view where, const char* fallback) {
  VN_ASSIGN(const std::string name, string_field_or(json, "behavior", fallback, where));
  constexpr auto kBehaviors = std::to_array<std::pair<std::string_view, SplitBehavior>>({
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  });
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return fail(ErrorCode::kUnsupported, "{}.behavior '{}' isn't supported", where, escape(name));
}

Status add_normalizer_step(const Json& json, std::string_view type, Normalizer& normalizer) {
  constexpr std::string_view kWhere = "normalizer";
  if (type == "NFC") {
    normalizer.add(NfcStep{});
  } else if (type == "NFKC") {
    normalizer.add(NfkcStep{});
  } else if (type == "Lowercase") {
    normalizer.add(LowercaseStep{});
  } else if (type == "Strip") {
    VN_ASSIGN(const bool left, bool_field(json, "strip_left", true, kWhere));
    VN_ASSIGN(const bool right, bool_field(json, "strip_right", true, kWhere));
    normalizer.add(StripStep{left, right});
  } else if (type == "Prepend") {
    VN_ASSIGN(const std::string text, string_field(json, "prepend", kWhere));
    normalizer.add(PrependStep{decode_text(text)});
  } else if (type == "Replace") {
    VN_ASSIGN(ReplaceStep step, parse_replace(json, kWhere));
    normalizer.add(std::move(step));
  } else {
    return unsupported(kWhere, type, "NFC, NFKC, Lowercase, Strip, Prepend, Replace, Sequence");
  }
  return {};
}

/// The replacement of a Metaspace and whether ("always"), where ("first") or not ("never") one is put in front.
struct Metaspace {
  char32_t replacement;
  std::string scheme;
};

Result<Metaspace> parse_metaspace(const Json& json, std::string_view where) {
  VN_ASSIGN(const char32_t replacement, character_field(json, "replacement", where));
  // Older files say add_prefix_space instead of prepend_scheme.
  VN_ASSIGN(const bool prefix, bool_field(json, "add_prefix_space", true, where));
  VN_ASSIGN(std::string scheme, string_field_or(json, "prepend_scheme", prefix ? "always" : "never", where));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return fail(ErrorCode::kUnsupported, "{}.prepend_scheme '{}' isn't supported", where, escape(scheme));
  }
  return Metaspace{replacement, std::move(scheme)};
}

class PreTokenizerReader {
 public:
  static constexpr std::string_view kWhere = "pre_tokenizer";

  Status add(const Json& json, std::string_view type) {
    if (++count_ > kMaxSteps) return fail(ErrorCode::kUnsupported, "{} of more than {} steps", kWhere, kMaxSteps);
    if (type == "ByteLevel") return add_byte_level(json);
    if (type == "Split") return add_split(json);
    if (type == "Metaspace") return add_metaspace(json);
    if (type == "Digits") {
      VN_ASSIGN(const bool individual, bool_field(json, "individual_digits", false, kWhere));
      result.add(SplitClassStep{is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
      return {};
    }
    if (type == "Punctuation") {
      VN_ASSIGN(const SplitBehavior behavior, parse_behavior(json, kWhere, "Isolated"));
      result.add(SplitClassStep{is_punctuation, behavior});
      return {};
    }
    return unsupported(kWhere, type, "ByteLevel, Split, Digits, Punctuation, Metaspace, Sequence");
  }

  PreTokenizer result;

 private:
  Status add_byte_level(const Json& json) {
    if (std::exchange(byte_level_, true)) return fail(ErrorCode::kUnsupported, "{}: ByteLevel twice", kWhere);
    VN_ASSIGN(const bool prefix, bool_field(json, "add_prefix_space", true, kWhere));
    VN_ASSIGN(const bool use_regex, bool_field(json, "use_regex", true, kWhere));
    if (prefix) result.add(PrefixStep{U' ', false});
    if (use_regex) {
      VN_ASSIGN(Regex regex, Regex::compile(kGpt2Pattern));
      result.add(SplitStep{std::move(regex)});
    }
    result.add(ByteLevelStep{});
    return {};
  }

  Status add_split(const Json& json) {
    VN_ASSIGN(TextPattern pattern, parse_pattern(json, kWhere));
    VN_ASSIGN(const SplitBehavior behavior, parse_behavior(json, kWhere, ""));
    VN_ASSIGN(const bool invert, bool_field(json, "invert", false, kWhere));
    result.add(SplitStep{std::move(pattern), behavior, invert});
    return {};
  }

  Status add_metaspace(const Json& json) {
    VN_ASSIGN(const Metaspace metaspace, parse_metaspace(json, kWhere));
    VN_ASSIGN(const bool split, bool_field(json, "split", true, kWhere));
    result.add(ReplaceSpacesStep{metaspace.replacement});
    if (metaspace.scheme != "never") result.add(PrefixStep{metaspace.replacement, metaspace.scheme == "first"});
    if (split) {
      result.add(SplitStep{std::u32string(1, metaspace.replacement), SplitBehavior::kMergedWithNext});
    }
    return {};
  }

  std::size_t count_ = 0;
  bool byte_level_ = false;
};

/// Decoders are supported as the chain that models use: Replace..., ByteFallback, Fuse, Strip; or one of ByteLevel and
/// Metaspace alone. Other orders would need text of several tokens before it is certain.
class DecoderReader {
 public:
  static constexpr std::string_view kWhere = "decoder";

  Status add(const Json& json, std::string_view type) {
    if (++count_ > kMaxSteps) return fail(ErrorCode::kUnsupported, "{} of more than {} steps", kWhere, kMaxSteps);
    const Stage stage = type == "Replace"        ? kReplace
                        : type == "ByteFallback" ? kByteFallback
                        : type == "Fuse"         ? kFuse
                        : type == "Strip"        ? kStrip
                                                 : kAlone;
    if (stage == kAlone && type != "ByteLevel" && type != "Metaspace") {
      return unsupported(kWhere, type, "ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence");
    }
    const bool in_order = stage == kAlone ? last_ == kStart : stage > last_ || (stage == kReplace && last_ == kReplace);
    if (!in_order || (stage == kStrip && last_ != kFuse)) {
      return fail(ErrorCode::kUnsupported,
                  "{} '{}' at this place isn't supported (the order known: Replace, ByteFallback, Fuse, Strip; or "
                  "ByteLevel or Metaspace alone)",
                  kWhere, escape(type));
    }
    last_ = stage;
    return add_stage(stage, json, type);
  }

  DecoderOptions result;

 private:
  enum Stage : std::uint8_t { kStart, kReplace, kByteFallback, kFuse, kStrip, kAlone };

  Status add_stage(Stage stage, const Json& json, std::string_view type) {
    if (stage == kReplace) {
      VN_ASSIGN(ReplaceStep step, parse_replace(json, kWhere));
      result.replaces.push_back(std::move(step));
    } else if (stage == kByteFallback) {
      result.byte_fallback = true;
    } else if (stage == kStrip) {
      return add_strip(json);
    } else if (type == "ByteLevel") {
      result.byte_level = true;
    } else if (type == "Metaspace") {
      VN_ASSIGN(const Metaspace metaspace, parse_metaspace(json, kWhere));
      result.metaspace = metaspace.replacement;
      result.drop_first = metaspace.scheme != "never";
    }
    return {};
  }

  Status add_strip(const Json& json) {
    VN_ASSIGN(result.strip_character, character_field(json, "content", kWhere));
    VN_ASSIGN(const std::int64_t start, integer_field(json, "start", 0, 1 << 16, kWhere));
    VN_ASSIGN(const std::int64_t stop, integer_field(json, "stop", 0, 1 << 16, kWhere));
    if (stop != 0) return fail(ErrorCode::kUnsupported, "decoder 'Strip' with stop {} isn't supported", stop);
    result.strip_left = static_cast<std::uint32_t>(start);
    return {};
  }

  Stage last_ = kStart;
  std::size_t count_ = 0;
};

}  // namespace

Result<Normalizer> parse_normalizer(const Json& json) {
  Normalizer normalizer;
  std::size_t count = 0;
  VN_TRY(for_each_part(json, "normalizer", "normalizers", [&](const Json& part, std::string_view type) -> Status {
    if (++count > kMaxSteps) return fail(ErrorCode::kUnsupported, "normalizer of more than {} steps", kMaxSteps);
    return add_normalizer_step(part, type, normalizer);
  }));
  return normalizer;
}

Result<PreTokenizer> parse_pre_tokenizer(const Json& json) {
  PreTokenizerReader reader;
  VN_TRY(for_each_part(json, PreTokenizerReader::kWhere, "pretokenizers",
                       [&](const Json& part, std::string_view type) { return reader.add(part, type); }));
  return std::move(reader.result);
}

Result<DecoderOptions> parse_decoder(const Json& json) {
  DecoderReader reader;
  VN_TRY(for_each_part(json, DecoderReader::kWhere, "decoders",
                       [&](const Json& part, std::string_view type) { return reader.add(part, type); }));
  reader.result.join_with_space = json.is_null();
  return std::move(reader.result);
}

}  // namespace vernier::text_internal
