// vernier_embed(): the program holds exactly the file's bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "embed/sample.h"

namespace {

TEST(Embed, HoldsTheBytesOfTheFile) {
  const auto bytes = vernier::embed::sample();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text, std::string("Vernier\n\0\1\2\xff"
                              "end",
                              15));
}

TEST(Embed, IsPageAligned) { EXPECT_EQ(reinterpret_cast<std::uintptr_t>(vernier::embed::sample().data()) % 4096, 0U); }

}  // namespace
