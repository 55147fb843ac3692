#include "bench/room.h"

#include <string>

namespace vernier::bench {

Status check_room(const Backend& backend, const RoomWords& words, double bytes) {
  const std::uint64_t available = backend.memory().available_bytes;
  if (bytes <= static_cast<double>(available)) return {};
  constexpr double kGibibyte = 1073741824.0;
  return fail_with_hint(ErrorCode::kOutOfMemory, std::string(words.hint), "{} {:.1f} GiB, {:.1f} GiB {} available",
                        words.what, bytes / kGibibyte, static_cast<double>(available) / kGibibyte,
                        backend.is_host() ? "of the host's memory are" : "are");
}

Status check_host_room(const RoomWords& words, double bytes) {
  VN_ASSIGN(const auto host, create_backend("reference", {}));
  return check_room(*host, words, bytes);
}

}  // namespace vernier::bench
