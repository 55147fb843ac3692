// What `tokenizer.ggml.pre` stands for: a GGUF file names its pre-tokenizer and leaves the steps, the normaliser and
// some defaults to the reader. A new name is one row of the table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "text/pretokenizer.h"

namespace vernier::text_internal {

struct NamedStep {
  enum class Kind : std::uint8_t {
    kEnd,          // no more steps
    kSplit,        // at each match of the pattern; matches and gaps are both kept
    kDigits,       // each character of Nd, Nl, No is a piece
    kPunctuation,  // each run of punctuation is a piece
  };
  Kind kind = Kind::kEnd;
  std::string_view pattern;
};

struct NamedPreTokenizer {
  std::string_view name;
  std::array<NamedStep, 6> steps;
  bool nfc = false;          // the text is normalised to NFC first
  bool whole_first = false;  // a piece that is itself a token is taken without merging
  bool add_bos = false;      // where the file has no add_bos_token
};

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Cased letters of the scripts that existed when the pattern was written.
inline constexpr std::string_view kDeepseekLlmLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})"
    R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
inline constexpr std::string_view kDeepseekV3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr NamedStep kDigitsStep{NamedStep::Kind::kDigits, {}};
inline constexpr NamedStep kPunctuationStep{NamedStep::Kind::kPunctuation, {}};
constexpr NamedStep split_at(std::string_view pattern) { return {NamedStep::Kind::kSplit, pattern}; }

inline constexpr NamedStep kHanAndHangulStep = split_at(R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)");

inline constexpr auto kNamedPreTokenizers = std::to_array<NamedPreTokenizer>({
    {.name = "gpt-2", .steps = {split_at(kGpt2Pattern)}},
    {.name = "mpt", .steps = {split_at(kGpt2Pattern)}, .nfc = true},
    {.name = "smollm", .steps = {kDigitsStep, split_at(kGpt2Pattern)}},
    {.name = "starcoder", .steps = {kDigitsStep, split_at(kGpt2Pattern)}},
    {.name = "refact", .steps = {kDigitsStep, split_at(kGpt2Pattern)}},
    {.name = "command-r", .steps = {kDigitsStep, split_at(kGpt2Pattern)}, .nfc = true},
    {.name = "llama-bpe", .steps = {split_at(kLlama3Pattern)}, .whole_first = true, .add_bos = true},
    {.name = "llama3", .steps = {split_at(kLlama3Pattern)}, .whole_first = true, .add_bos = true},
    {.name = "llama-v3", .steps = {split_at(kLlama3Pattern)}, .whole_first = true, .add_bos = true},
    {.name = "qwen2", .steps = {split_at(kQwen2Pattern)}, .nfc = true},
    {.name = "qwen35", .steps = {split_at(kQwen35Pattern)}, .nfc = true},
    {.name = "gpt-4o", .steps = {split_at(kGpt4oPattern)}, .whole_first = true},
    {.name = "tekken", .steps = {split_at(kTekkenPattern)}, .whole_first = true, .add_bos = true},
    {.name = "falcon", .steps = {kPunctuationStep, split_at(kGpt2Pattern), split_at("[0-9][0-9][0-9]")}},
    {.name = "deepseek-llm",
     .steps = {split_at(R"([\r\n])"), split_at(kDeepseekLlmLetters),
               split_at(R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"),
               split_at(R"(\s+$)"), kHanAndHangulStep, kDigitsStep}},
    {.name = "deepseek-coder",
     .steps = {split_at(R"([\r\n])"), split_at(R"(\s?\p{L}+)"), split_at(R"(\s?\p{P}+)"), kHanAndHangulStep,
               kDigitsStep}},
    {.name = "deepseek-v3",
     .steps = {split_at(R"(\p{N}{1,3})"), split_at(R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"),
               split_at(kDeepseekV3Pattern)}},
});

/// Adds the row's steps; mapping bytes to characters isn't among them.
Status add_named_steps(const NamedPreTokenizer& named, PreTokenizer& pre_tokenizer);

}  // namespace vernier::text_internal
