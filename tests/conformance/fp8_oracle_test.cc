// Linears with block-FP8 weights against an oracle that was made from the format's description alone, in Python
// (tools/make_fp8_oracle.py): original bytes, BF16 scales, inputs, products in float64, and the products of mistakes,
// which the same comparison must refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/json.h"
#include "format/format_list.h"
#include "support/backends.h"
#include "support/bytes.h"
#include "support/sha256.h"
#include "support/test_data.h"

namespace vernier::test {
namespace {

/// One weight of a case: [tokens, rows] everywhere.
struct Member {
  Weight weight;
  std::vector<double> expected;
  std::vector<float> magnitude;  ///< sums of |w| |x|
  std::map<std::string, std::vector<float>> wrong;
};

struct OracleCase {
  std::string name;
  std::int64_t tokens = 0;
  std::int64_t cols = 0;
  std::vector<float> x;
  std::vector<float> before;  ///< of an output that is added to; empty: it's overwritten
  std::vector<Member> members;
};

struct Oracle {
  std::string blob;  ///< codes and scales lie here
  std::vector<OracleCase> cases;
};

std::int64_t number(const Json& object, std::string_view key) { return object.find(key)->as_int64(); }

/// The bytes of an array, which must have the recorded hash.
std::string_view bytes_of_entry(const Oracle& oracle, const Json& entry) {
  const std::string_view bytes =
      std::string_view(oracle.blob)
          .substr(static_cast<std::size_t>(number(entry, "offset")), static_cast<std::size_t>(number(entry, "bytes")));
  EXPECT_EQ(sha256(bytes), entry.find("sha256")->as_string());
  return bytes;
}

template <class T>
std::vector<T> array(const Oracle& oracle, const Json& entry) {
  const std::string_view bytes = bytes_of_entry(oracle, entry);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Member read_member(const Oracle& oracle, const Json& json, std::int64_t cols) {
  Member member;
  Weight& weight = member.weight;
  weight.format = *find_format("fp8-block");
  weight.layout = WeightLayout::kSeparate;
  weight.rows = number(json, "rows");
  weight.cols = cols;
  weight.codes = reinterpret_cast<const std::byte*>(bytes_of_entry(oracle, *json.find("codes")).data());
  weight.row_stride = cols;
  weight.scales = reinterpret_cast<const std::byte*>(bytes_of_entry(oracle, *json.find("scales")).data());
  weight.scale_stride = number(json, "grid_cols") * 2;
  weight.scale_dtype = DType::kBF16;
  weight.scale_block_rows = 128;
  weight.scale_block_cols = 128;
  weight.first_row = number(json, "first_row");
  member.expected = array<double>(oracle, *json.find("expected"));
  member.magnitude = array<float>(oracle, *json.find("magnitude"));
  for (const auto& [name, entry] : json.find("wrong")->as_object()) member.wrong[name] = array<float>(oracle, entry);
  return member;
}

const Oracle& oracle() {
  static const Oracle loaded = [] {
    Oracle result;
    result.blob = load(test_data("format/fp8_block_oracle.bin"));
    const auto json = parse_json(load(test_data("format/fp8_block_oracle.json")));
    EXPECT_TRUE(json);
    EXPECT_EQ(sha256(result.blob), json->find("sha256")->as_string());
    for (const Json& entry : json->find("cases")->as_array()) {
      OracleCase test;
      test.name = entry.find("name")->as_string();
      test.tokens = number(entry, "tokens");
      test.cols = number(entry, "cols");
      test.x = array<float>(result, *entry.find("x"));
      if (const Json* before = entry.find("before"); before != nullptr) test.before = array<float>(result, *before);
      for (const Json& member : entry.find("members")->as_array()) {
        test.members.push_back(read_member(result, member, test.cols));
      }
      result.cases.push_back(std::move(test));
    }
    return result;
  }();
  return loaded;
}

/// How many elements are off by more than `times` the bound of docs/decisions/numerics.md.
template <class T>
std::size_t elements_off(const Member& member, std::span<const T> found, double times) {
  const double unit = static_cast<double>(member.weight.cols + 4) * 0x1p-24 * times;
  std::size_t off = 0;
  for (std::size_t i = 0; i < member.expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - member.expected[i]);
    off += error <= unit * static_cast<double>(member.magnitude[i]) ? 0 : 1;
  }
  return off;
}

class Fp8Oracle : public BackendTest<> {};

TEST_P(Fp8Oracle, ProductsAreRight) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    for (const OracleCase& test : oracle().cases) {
      const TestMatrix x(*backend, test.tokens, test.cols, test.x);
      std::vector<Weight> placed;
      std::vector<std::unique_ptr<TestMatrix>> y;
      for (const Member& member : test.members) {
        auto weight = backend->place(member.weight);
        ASSERT_TRUE(weight) << weight.error().message;
        placed.push_back(std::move(*weight));
        y.push_back(std::make_unique<TestMatrix>(*backend, test.tokens, member.weight.rows, test.before));
      }
      // All members in one call, as models do with q, k and v.
      std::vector<LinearOutput> outputs;
      for (std::size_t i = 0; i < placed.size(); ++i) {
        outputs.push_back({.weight = &placed[i], .bias = {}, .y = y[i]->view(), .accumulate = !test.before.empty()});
      }
      VN_EXPECT_OK(backend->linear({x.view(), outputs}));
      for (std::size_t i = 0; i < placed.size(); ++i) {
        const std::vector<float> found = y[i]->read();
        EXPECT_EQ(elements_off<float>(test.members[i], found, 1.0), 0U) << test.name << ", member " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Oracle, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

TEST(Fp8OracleData, TellsMistakesApart) {
  std::map<std::string, int> seen;
  for (const OracleCase& test : oracle().cases) {
    for (const Member& member : test.members) {
      EXPECT_EQ(elements_off<double>(member, member.expected, 0.0), 0U);
      for (const auto& [mistake, outputs] : member.wrong) {
        ++seen[mistake];
        ASSERT_EQ(outputs.size(), member.expected.size());
        // What a mistake doesn't touch stays right, such as rows whose block has the same scale either way.
        EXPECT_GE(elements_off<float>(member, outputs, 100.0), outputs.size() / 8)
            << test.name << ": " << mistake << " is hardly seen";
      }
    }
  }
  for (const char* mistake :
       {"divide", "one-k-scale", "transposed", "narrow-grid", "stacked-origin", "local-origin", "overwrite"}) {
    EXPECT_GE(seen[mistake], 1) << mistake;
  }
}

TEST(Fp8OracleData, HashesAreThoseOfTheStandard) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace vernier::test
