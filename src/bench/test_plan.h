// What `vernier bench --tests` and `--depth` say. Parsing only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vernier::bench {

/// One measurement: `sequences` of them, each with `prompt` tokens processed in one go and then `generated` tokens one
/// by one.
struct Test {
  std::int32_t prompt = 0;
  std::int32_t generated = 0;
  std::int32_t sequences = 1;

  [[nodiscard]] std::int64_t tokens() const { return std::int64_t{sequences} * (prompt + generated); }
  /// As it is written: "pp512", "tg64x16", "pp512+tg128".
  [[nodiscard]] std::string name() const;
};

/// "pp512,pp2048,tg128,tg64x16,pp512+tg128": commas between tests. kInvalidArgument naming the test that can't be read.
[[nodiscard]] Result<std::vector<Test>> parse_tests(std::string_view text);
/// "0,512,32768": tokens that each sequence has behind it already.
[[nodiscard]] Result<std::vector<std::int32_t>> parse_depths(std::string_view text);

}  // namespace vernier::bench
