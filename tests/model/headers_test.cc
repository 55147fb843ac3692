// The tensor tables against published checkpoints: each header's configuration must give exactly the parameters that
// its files hold (tools/make_header_goldens.py makes the data).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "model/config_support.h"
#include "support/test_data.h"

namespace vernier {
namespace {

Json load(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return test::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::vector<std::filesystem::path> headers() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(test::test_data("headers"))) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Whether the files of a golden hold the tensor of an optional spec.
bool is_held(const TensorSpec& spec, const std::set<std::string>& optional_roles) {
  if (spec.mtp) return optional_roles.count("mtp") > 0;
  if (spec.required) return true;
  return optional_roles.count(spec.role.substr(spec.role.rfind('.') + 1)) > 0;
}

class Headers : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Headers, TensorTableHoldsThePublishedParameters) {
  const Json golden = load(GetParam());
  const Architecture& architecture = test::family(golden.find("architecture")->as_string());
  const Json* keys = golden.find("keys");
  auto config =
      keys != nullptr ? architecture.config_from_gguf(*keys) : architecture.config_from_hf(*golden.find("config"));
  ASSERT_TRUE(config) << config.error().message;
  if (keys == nullptr) config->name_prefix = golden.find("prefix")->as_string();
  EXPECT_EQ(config->num_layers, golden.find("layers")->as_int64());
  EXPECT_EQ(config->vocab_size, golden.find("vocab_size")->as_int64());
  EXPECT_EQ(config->context_length, golden.find("context_length")->as_int64());
  const Json* experts = golden.find("experts");
  EXPECT_EQ(config->num_experts, experts->is_null() ? 0 : experts->find("count")->as_int64());
  EXPECT_EQ(config->experts_per_token, experts->is_null() ? 0 : experts->find("used")->as_int64());

  std::set<std::string> optional_roles;
  for (const Json& role : golden.find("optional_roles")->as_array()) optional_roles.insert(role.as_string());
  std::set<std::string> roles;
  std::uint64_t parameters = 0;
  for (const TensorSpec& spec : architecture.tensors(*config)) {
    EXPECT_TRUE(roles.insert(spec.role).second) << spec.role;
    EXPECT_FALSE(spec.spellings.empty()) << spec.role;
    if (!is_held(spec, optional_roles)) continue;
    std::uint64_t size = 1;
    for (const std::uint64_t dim : spec.shape) size *= dim;
    parameters += size;
  }
  EXPECT_EQ(parameters, static_cast<std::uint64_t>(golden.find("parameters")->as_int64()));
  EXPECT_EQ(architecture.caches(*config).kv.size(),
            static_cast<std::size_t>(config->num_layers + (config->mtp_layers > 0 ? 1 : 0)));
}

INSTANTIATE_TEST_SUITE_P(Published, Headers, testing::ValuesIn(headers()), [](const auto& test_info) {
  std::string name = test_info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vernier
