#include "base/base64.h"

namespace vernier {
namespace {

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return fail(ErrorCode::kInvalidArgument, "base64 must be a multiple of 4 characters long, found {}", text.size());
  }
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  unsigned buffer = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i >= text.size() - padding;
    const int value = pad ? 0 : value_of(text[i]);
    if (value < 0) return fail(ErrorCode::kInvalidArgument, "base64 has a bad character at {}", i);
    buffer = (buffer << 6U) | static_cast<unsigned>(value);
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) bytes.push_back(static_cast<char>((buffer >> shift) & 0xFFU));
    buffer = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace vernier
