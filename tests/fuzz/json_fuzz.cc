// Any text either fails to parse or survives being written and read again unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = vernier::parse_json(text);
  if (!value) return 0;
  const std::string written = vernier::to_json_text(*value);
  const auto again = vernier::parse_json(written);
  if (!again || vernier::to_json_text(*again) != written) std::abort();
  return 0;
}
