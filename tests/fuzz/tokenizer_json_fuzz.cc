// Any bytes as a tokenizer.json: refused, or a tokenizer that encodes and decodes without harm.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = vernier::Tokenizer::from_json(text);
  if (!tokenizer) return 0;
  // The input itself is one of the texts, so that whatever it names as tokens or patterns occurs.
  const std::string_view texts[] = {"", " Hello, world's 123!\r\n\n", "\xC0\xAF\xED\xA0\x80 \u00E9e\u0301\u4E2D\u200D",
                                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", text.substr(0, 4096)};
  for (const std::string_view sample : texts) {
    for (const bool parse_special : {false, true}) {
      const auto ids =
          (*tokenizer)->encode(sample, {.add_special = true, .parse_special = parse_special, .literal_ranges = {}});
      if (!ids) continue;
      vernier::Detokenizer stream(*tokenizer, false);
      std::string streamed;
      for (const std::int32_t id : *ids) streamed += stream.push(id);
      streamed += stream.finish();
      if (streamed != (*tokenizer)->decode(*ids, false)) __builtin_trap();
    }
  }
  return 0;
}
