// The steps of pre-tokenizers.
#include "text/pretokenizer.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

using Piece = SplitText::Piece;

/// A match or a gap between matches, on its way to becoming a piece.
struct Part {
  Piece piece;
  bool is_match;
};

/// The byte-level alphabet: printable Latin-1 stands for itself, every other byte for the next free character from
/// U+0100 on.
constexpr std::array<char32_t, 256> make_byte_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}
constexpr std::array<char32_t, 256> kByteCharacters = make_byte_characters();
constexpr char32_t kByteCharactersEnd = 0x144;

constexpr std::array<std::int16_t, kByteCharactersEnd> make_bytes_of_characters() {
  std::array<std::int16_t, kByteCharactersEnd> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[kByteCharacters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}
constexpr std::array<std::int16_t, kByteCharactersEnd> kBytesOfCharacters = make_bytes_of_characters();

/// Matches and gaps of a piece, from positions relative to it.
void list_parts(const Piece& piece, const std::vector<Regex::Match>& matches, bool invert, std::vector<Part>& parts) {
  parts.clear();
  std::size_t done = piece.begin;
  for (const Regex::Match& match : matches) {
    const Piece found{piece.begin + match.begin, piece.begin + match.end};
    if (found.begin > done) parts.push_back({{done, found.begin}, invert});
    parts.push_back({found, !invert});
    done = found.end;
  }
  if (done < piece.end) parts.push_back({{done, piece.end}, invert});
}

void append_piece(std::vector<Piece>& pieces, Piece piece) {
  if (piece.end > piece.begin) pieces.push_back(piece);
}

void append_merged_with_next(const std::vector<Part>& parts, std::vector<Piece>& pieces) {
  // A match joins the part behind it, unless that is a match too: then it stands alone.
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Piece piece = parts[i].piece;
    if (parts[i].is_match && i + 1 < parts.size() && !parts[i + 1].is_match) piece.end = parts[++i].piece.end;
    append_piece(pieces, piece);
  }
}

void append_merged_with_previous(const std::vector<Part>& parts, std::vector<Piece>& pieces) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Piece piece = parts[i].piece;
    if (!parts[i].is_match && i + 1 < parts.size() && parts[i + 1].is_match) piece.end = parts[++i].piece.end;
    append_piece(pieces, piece);
  }
}

void append_contiguous(const std::vector<Part>& parts, std::vector<Piece>& pieces) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Piece piece = parts[i].piece;
    while (i + 1 < parts.size() && parts[i + 1].is_match == parts[i].is_match) piece.end = parts[++i].piece.end;
    append_piece(pieces, piece);
  }
}

void append_parts(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<Piece>& pieces) {
  switch (behavior) {
    case SplitBehavior::kMergedWithNext: return append_merged_with_next(parts, pieces);
    case SplitBehavior::kMergedWithPrevious: return append_merged_with_previous(parts, pieces);
    case SplitBehavior::kContiguous: return append_contiguous(parts, pieces);
    default:
      for (const Part& part : parts) {
        if (behavior == SplitBehavior::kIsolated || !part.is_match) append_piece(pieces, part.piece);
      }
  }
}

struct StepRunner {
  SplitText& text;
  RegexScratch& scratch;

  /// Replaces the pieces by the parts that `find` (piece -> matches within it) cuts them into.
  template <class Find>
  Status split(SplitBehavior behavior, bool invert, const Find& find) {
    std::vector<Piece> pieces;
    std::vector<Part> parts;
    for (const Piece& piece : text.pieces) {
      VN_ASSIGN(const std::vector<Regex::Match> matches, find(text.view(piece)));
      list_parts(piece, matches, invert, parts);
      append_parts(parts, behavior, pieces);
    }
    const bool same_begin =
        !pieces.empty() && !text.pieces.empty() && pieces.front().begin == text.pieces.front().begin;
    text.at_text_begin = text.at_text_begin && same_begin;
    text.pieces = std::move(pieces);
    return {};
  }

  Status operator()(const SplitStep& step) {
    return split(step.behavior, step.invert,
                 [&](std::u32string_view piece) { return find_matches(step.pattern, piece, scratch); });
  }

  Status operator()(const SplitClassStep& step) {
    return split(step.behavior, false, [&](std::u32string_view piece) -> Result<std::vector<Regex::Match>> {
      std::vector<Regex::Match> matches;
      for (std::size_t i = 0; i < piece.size(); ++i) {
        if (step.matches(piece[i])) matches.push_back({i, i + 1});
      }
      return matches;
    });
  }

  Status operator()(const PrefixStep& step) {
    return rewrite([&](std::u32string_view piece, bool first, std::u32string& out) {
      if (piece.front() != step.character && (first || !step.first_only)) out += step.character;
      out += piece;
    });
  }

  Status operator()(const ReplaceSpacesStep& step) {
    for (char32_t& c : text.text) c = c == U' ' ? step.replacement : c;
    return {};
  }

  Status operator()(const ByteLevelStep&) {
    std::string bytes;
    return rewrite([&](std::u32string_view piece, bool, std::u32string& out) {
      bytes.clear();
      for (const char32_t c : piece) append_utf8(bytes, c);
      for (const char byte : bytes) out += byte_level_character(static_cast<std::uint8_t>(byte));
    });
  }

  /// Builds the text anew from what `append` (piece, whether it begins the whole text, out) makes of each piece.
  template <class Append>
  Status rewrite(const Append& append) {
    std::u32string out;
    out.reserve(text.text.size());
    bool first = text.at_text_begin;
    for (Piece& piece : text.pieces) {
      const std::size_t begin = out.size();
      append(text.view(piece), first, out);
      first = false;
      piece = {begin, out.size()};
    }
    if (out.size() > Normalizer::kMaxCharacters) {
      return fail(ErrorCode::kUnsupported, "pre-tokenized text of more than {} characters", Normalizer::kMaxCharacters);
    }
    text.text = std::move(out);
    return {};
  }
};

}  // namespace

char32_t byte_level_character(std::uint8_t byte) { return kByteCharacters[byte]; }

int byte_of_level_character(char32_t c) { return c < kByteCharactersEnd ? kBytesOfCharacters[c] : -1; }

Status PreTokenizer::apply(SplitText& text, RegexScratch& scratch) const {
  for (const PreTokenizerStep& step : steps_) VN_TRY(std::visit(StepRunner{text, scratch}, step));
  return {};
}

}  // namespace vernier::text_internal
