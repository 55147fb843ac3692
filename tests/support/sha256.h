// SHA-256 (FIPS 180-4) of test data, to compare with hashes that the data's makers recorded.
#pragma once

#include <string>
#include <string_view>

namespace vernier::test {

/// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256(std::string_view bytes);

}  // namespace vernier::test
