#include "checkpoint/name_check.h"

#include "base/utf8.h"

namespace vernier {

bool is_clean_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] >= 0x20 && text[at] < 0x7F) {  // nearly all bytes of nearly all names
      ++at;
      continue;
    }
    const Utf8Char ch = decode_utf8(text, at);
    if (!ch.valid || ch.code_point < 0x20 || (ch.code_point >= 0x7F && ch.code_point < 0xA0)) return false;
    at += ch.size;
  }
  return true;
}

Status check_tensor_name(std::string_view name, const ContainerLimits& limits) {
  if (name.empty()) return fail(ErrorCode::kCorrupt, "its name is empty");
  if (name.size() > limits.tensor_name_bytes) {
    return fail(ErrorCode::kCorrupt, "its name '{}' has {} bytes, which exceeds the limit of {}", escape(name),
                name.size(), limits.tensor_name_bytes);
  }
  if (!is_clean_text(name)) {
    return fail(ErrorCode::kCorrupt, "its name '{}' holds a control character or ill-formed UTF-8", escape(name));
  }
  return {};
}

}  // namespace vernier
