// Whole checkpoints: single files, split GGUF sets, sharded safetensors with their index, folders.
#include "checkpoint/checkpoint_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/shard_index.h"
#include "support/expect_error.h"
#include "support/gguf_builder.h"
#include "support/safetensors_builder.h"
#include "support/test_data.h"

namespace vernier {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::GgufBuilder;
using test::SafetensorsBuilder;
using test::save;
using test::shard_index_text;
using test::TempFolder;

SafetensorsBuilder shard_with(const std::vector<std::string>& names) {
  SafetensorsBuilder shard;
  for (const std::string& name : names) shard.f32_tensor(name, {2}, {1, 2});
  return shard;
}

/// A folder with two shards: a and b in the first, c in the second.
struct Sharded {
  Sharded() {
    shard_with({"a", "b"}).save(folder / "m-00001-of-00002.safetensors");
    shard_with({"c"}).save(folder / "m-00002-of-00002.safetensors");
    save(folder / "config.json", "{}");
    write_index({});
  }
  /// Writes the index with `changes` to the right map ("" removes).
  void write_index(const std::map<std::string, std::string>& changes) const {
    std::map<std::string, std::string> map = {{"a", "m-00001-of-00002.safetensors"},
                                              {"b", "m-00001-of-00002.safetensors"},
                                              {"c", "m-00002-of-00002.safetensors"}};
    for (const auto& [tensor, shard] : changes) {
      if (shard.empty()) {
        map.erase(tensor);
      } else {
        map[tensor] = shard;
      }
    }
    save(folder / "model.safetensors.index.json", shard_index_text(map));
  }
  [[nodiscard]] Result<CheckpointFiles> open() const { return CheckpointFiles::open(folder.path()); }
  TempFolder folder;
};

TEST(CheckpointFiles, SingleFiles) {
  const auto gguf = CheckpointFiles::open(test::test_data("containers/sample.gguf"));
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ(gguf->container(), ContainerKind::kGguf);
  EXPECT_EQ(gguf->name(), "sample.gguf");
  ASSERT_NE(gguf->gguf(), nullptr);
  EXPECT_EQ(gguf->find("blk.0.attn_k.weight")->type_name, "q8_0");
  EXPECT_EQ(gguf->find("blk.0"), nullptr);
  EXPECT_EQ(*gguf->side_file(SideFile::kConfig), nullptr);
  EXPECT_TRUE(gguf->check_unchanged());
  const auto tensors = CheckpointFiles::open(test::test_data("containers/sample.safetensors"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(container_name(tensors->container()), "safetensors");
  EXPECT_EQ(tensors->gguf(), nullptr);
  EXPECT_EQ(tensors->tensors().size(), 5U);
}

TEST(CheckpointFiles, ShardsWithAnIndexFromAnyDoor) {
  const Sharded model;
  for (const char* door : {"", "model.safetensors.index.json", "m-00002-of-00002.safetensors"}) {
    const auto checkpoint = CheckpointFiles::open(*door != '\0' ? model.folder / door : model.folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->tensors().size(), 3U);
    EXPECT_EQ(checkpoint->files().size(), 2U);
    EXPECT_EQ(checkpoint->find("c")->file_index, 1U);
    EXPECT_EQ(checkpoint->find("c")->file->name(), "m-00002-of-00002.safetensors");
    EXPECT_EQ(text_of(*checkpoint->side_file(SideFile::kConfig)), "{}");
    EXPECT_TRUE(checkpoint->warnings().empty());
  }
}

TEST(CheckpointFiles, FilesThatTheIndexDoesNotNameAreLeftUnread) {
  const Sharded model;
  save(model.folder / "consolidated.safetensors", "garbage");
  const auto checkpoint = model.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->warnings().size(), 1U);
  EXPECT_NE(checkpoint->warnings()[0].find("consolidated.safetensors"), std::string::npos);
}

TEST(CheckpointFiles, WithoutAnIndexAllFilesAreRead) {
  const TempFolder folder;
  shard_with({"a"}).save(folder / "x.safetensors");
  shard_with({"b"}).save(folder / "y.safetensors");
  fs::create_directory(folder / "original");
  save(folder / "original/z.safetensors", "garbage");
  const auto checkpoint = CheckpointFiles::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  // One file named: that file alone.
  EXPECT_EQ(CheckpointFiles::open(folder / "y.safetensors")->tensors().size(), 1U);
  shard_with({"a"}).save(folder / "z.safetensors");
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder.path()),
                         {"duplicate tensor 'a', in x.safetensors and in z.safetensors"}));
}

TEST(CheckpointFilesHostile, C41ShardNames) {
  const Sharded model;
  for (const char* name : {"../m.safetensors", "/etc/passwd", "a\\b", "C:x", ".", "..", "sub/m.safetensors"}) {
    model.write_index({{"c", name}});
    EXPECT_TRUE(fails_with(model.open(), {"model.safetensors.index.json", "tensor 'c'", "plain file name"})) << name;
  }
  save(model.folder / "model.safetensors.index.json", R"({"weight_map":{"a":"x\u0000y"}})");
  EXPECT_TRUE(fails_with(model.open(), {"x\\x00y"}));
  save(model.folder / "model.safetensors.index.json", R"({"weight_map":{"a":""}})");
  EXPECT_TRUE(fails_with(model.open(), {"plain file name"}));
  fs::create_directory(model.folder / "dir.safetensors");
  model.write_index({{"c", "dir.safetensors"}});
  EXPECT_TRUE(fails_with(model.open(), {"dir.safetensors: not a regular file"}));
  ASSERT_EQ(mkfifo((model.folder / "fifo.safetensors").c_str(), 0600), 0);
  model.write_index({{"c", "fifo.safetensors"}});
  EXPECT_TRUE(fails_with(model.open(), {"fifo.safetensors: not a regular file"}));
}

TEST(CheckpointFilesHostile, C42ShardThatLinksOut) {
  const TempFolder outside;
  const Sharded model;
  fs::rename(model.folder / "m-00002-of-00002.safetensors", outside / "blob");
  fs::create_symlink(outside / "blob", model.folder / "m-00002-of-00002.safetensors");
  EXPECT_TRUE(fails_with(model.open(), {"m-00002-of-00002.safetensors", "symbolic link", "--allow-root"}));
  const auto allowed = CheckpointFiles::open(model.folder.path(), {.allowed_roots = {outside.path()}});
  EXPECT_TRUE(allowed) << allowed.error().message;
}

TEST(CheckpointFilesHostile, C43MissingShardsAreAllListed) {
  const Sharded model;
  model.write_index({{"d", "m-3.safetensors"}, {"e", "m-5.safetensors"}});
  const auto missing = model.open();
  EXPECT_TRUE(fails_with(missing, {"2 of 4 shards are missing: 'm-3.safetensors', 'm-5.safetensors'"}));
  EXPECT_EQ(missing.error().code, ErrorCode::kCorrupt);
}

TEST(CheckpointFilesHostile, C44IndexAgainstShards) {
  const Sharded model;
  model.write_index({{"d", "m-00001-of-00002.safetensors"}});
  EXPECT_TRUE(fails_with(model.open(), {"1 tensors of the index are in no shard: 'd'"}));
  model.write_index({{"b", ""}});
  EXPECT_TRUE(fails_with(model.open(), {"1 tensors of the shards are not in the index: 'b'"}));
  model.write_index({{"b", "m-00002-of-00002.safetensors"}});
  EXPECT_TRUE(fails_with(model.open(), {"tensor 'b' is in m-00001-of-00002.safetensors, but the index says m-00002"}));
  model.write_index({});
  shard_with({"b", "c"}).save(model.folder / "m-00002-of-00002.safetensors");
  EXPECT_TRUE(fails_with(model.open(), {"duplicate tensor 'b', in m-00001", "and in m-00002"}));
}

TEST(CheckpointFilesHostile, IndexText) {
  const ContainerLimits limits;
  EXPECT_TRUE(fails_with(parse_shard_index("{}", limits), {"has no 'weight_map'"}));
  EXPECT_TRUE(fails_with(parse_shard_index(R"({"weight_map":{}})", limits), {"weight_map is empty"}));
  EXPECT_TRUE(fails_with(parse_shard_index(R"({"weight_map":[]})", limits), {"expected an object"}));
  EXPECT_TRUE(fails_with(parse_shard_index(R"({"weight_map":{"a":1}})", limits), {"expected a string"}));
  EXPECT_TRUE(
      fails_with(parse_shard_index(R"({"weight_map":{"a":"x","\u0061":"y"}})", limits), {"duplicate tensor 'a'"}));
  EXPECT_TRUE(fails_with(parse_shard_index(R"({"weight_map":{"a":"x"},"weight_map":{}})", limits), {"duplicate key"}));
  EXPECT_TRUE(fails_with(parse_shard_index(R"({"weight_map":{"a":"x"}} 1)", limits), {"nothing more"}));
  EXPECT_TRUE(parse_shard_index(R"({"metadata":{"total_size":1e9,"x":[]},"weight_map":{"a":"x"}})", limits));
  std::map<std::string, std::string> many;
  for (int i = 0; i < 4'097; ++i) many[std::to_string(i)] = "shard" + std::to_string(i);
  EXPECT_TRUE(fails_with(parse_shard_index(shard_index_text(many), limits), {"4097 shards", "limit of 4096"}));
}

TEST(CheckpointFiles, OneTensorAShardAndOddNames) {
  const TempFolder folder;
  std::map<std::string, std::string> map;
  for (int i = 0; i < 300; ++i) {
    const std::string tensor = "layers." + std::to_string(i) + ".weight";
    const std::string shard = "model-00001-" + tensor + ".safetensors";
    shard_with({tensor}).save(folder / shard);
    map[tensor] = shard;
  }
  save(folder / "model.safetensors.index.json", shard_index_text(map));
  const auto checkpoint = CheckpointFiles::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->files().size(), 300U);
}

// --- split GGUF sets -------------------------------------------------------------------------------------------------

/// Shard `number` (from 0) of three. The first has the model's keys and no tensors, as writers like to do.
GgufBuilder split_shard(std::uint32_t number) {
  GgufBuilder gguf;
  if (number == 0) gguf.string("general.architecture", "llama");
  gguf.u16("split.no", static_cast<std::uint16_t>(number)).u16("split.count", 3).i32("split.tensors.count", 3);
  if (number == 1) gguf.f32_tensor("a", {1}, {1});
  if (number == 1) gguf.f32_tensor("b", {1}, {2});
  if (number == 2) gguf.f32_tensor("c", {1}, {3});
  return gguf;
}
std::string split_file(std::uint32_t number) { return fmt::format("m-{:05}-of-00003.gguf", number + 1); }

struct Split {
  Split() {
    for (std::uint32_t i = 0; i < 3; ++i) split_shard(i).save(folder / split_file(i));
  }
  [[nodiscard]] Result<CheckpointFiles> open(std::uint32_t door = 0) const {
    return CheckpointFiles::open(folder / split_file(door));
  }
  TempFolder folder;
};

TEST(CheckpointFiles, SplitGgufFromAnyShard) {
  const Split model;
  save(model.folder / "config.json", "{}");
  for (std::uint32_t door = 0; door < 4; ++door) {
    const auto checkpoint = door < 3 ? model.open(door) : CheckpointFiles::open(model.folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->tensors().size(), 3U);
    EXPECT_EQ(**checkpoint->gguf()->find_string("general.architecture"), "llama");
    EXPECT_EQ(checkpoint->find("c")->file_index, 2U);
    EXPECT_EQ(*checkpoint->side_file(SideFile::kConfig) != nullptr, door == 3);
  }
}

TEST(CheckpointFilesHostile, C43SplitSets) {
  const Split model;
  fs::remove(model.folder / split_file(0));
  fs::remove(model.folder / split_file(2));
  EXPECT_TRUE(
      fails_with(model.open(1), {"2 of 3 shards are missing: 'm-00001-of-00003.gguf', 'm-00003-of-00003.gguf'"}));

  const Split short_set;
  GgufBuilder without_c;
  without_c.u16("split.no", 2).u16("split.count", 3).i32("split.tensors.count", 3);
  without_c.save(short_set.folder / split_file(2));
  EXPECT_TRUE(fails_with(short_set.open(), {"split.tensors.count 3, found 2"}));

  const Split swapped;
  split_shard(1).save(swapped.folder / split_file(2));
  EXPECT_TRUE(fails_with(swapped.open(), {split_file(2), "split.no is 1", "expected 2"}));

  const Split other_count;
  GgufBuilder of_four;
  of_four.u16("split.no", 2).u16("split.count", 4).i32("split.tensors.count", 3);
  of_four.save(other_count.folder / split_file(2));
  EXPECT_TRUE(fails_with(other_count.open(), {split_file(2), "split.count 4, expected 2 and 3"}));
  EXPECT_TRUE(fails_with(other_count.open(2), {"split.count is 4, which the file's name doesn't say"}));

  const Split other_model;
  GgufBuilder foreign;
  foreign.string("general.architecture", "qwen3");
  foreign.u16("split.no", 2).u16("split.count", 3).i32("split.tensors.count", 3);
  foreign.f32_tensor("c", {1}, {3});
  foreign.save(other_model.folder / split_file(2));
  EXPECT_TRUE(fails_with(other_model.open(), {split_file(2), "general.architecture is 'qwen3', but 'llama'"}));

  const Split twice;
  GgufBuilder again;
  again.u16("split.no", 2).u16("split.count", 3).i32("split.tensors.count", 3);
  again.f32_tensor("a", {1}, {3});
  again.save(twice.folder / split_file(2));
  EXPECT_TRUE(fails_with(twice.open(), {"duplicate tensor 'a'", split_file(1), split_file(2)}));
}

TEST(CheckpointFilesHostile, SplitNamesAndKeysDisagree) {
  const TempFolder folder;
  GgufBuilder plain;
  plain.f32_tensor("a", {1}, {1});
  plain.save(folder / "m-00001-of-00003.gguf");
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder / "m-00001-of-00003.gguf"), {"split.count is 1"}));
  split_shard(0).save(folder / "renamed.gguf");
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder / "renamed.gguf"), {"split.count is 3", "name"}));
  EXPECT_TRUE(fails_with(CheckpointFiles::from_gguf(split_shard(0).file()), {"one of 3 shards"}));
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder.path()), {"several GGUF files", "renamed.gguf"}));
}

TEST(SplitNames, Parsing) {
  const auto name = parse_split_name("my-model-00002-of-00012.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "my-model");
  EXPECT_EQ(name->number, 2U);
  EXPECT_EQ(name->count, 12U);
  EXPECT_EQ(name->file_name(12), "my-model-00012-of-00012.gguf");
  for (const char* other : {"m.gguf", "-00001-of-00002.gguf", "m-0001-of-00002.gguf", "m-00001-of-0000x.gguf",
                            "m-00001-of-00002.bin", "m_00001-of-00002.gguf"}) {
    EXPECT_FALSE(parse_split_name(other)) << other;
  }
}

// --- what is no checkpoint -------------------------------------------------------------------------------------------

TEST(CheckpointFilesHostile, C48ThingsThatAreNoFiles) {
  const TempFolder folder;
  const auto nothing = CheckpointFiles::open(folder / "nothing.gguf");
  EXPECT_TRUE(fails_with(nothing, {"nothing.gguf", "no such file"}));
  EXPECT_EQ(nothing.error().code, ErrorCode::kNotFound);
  ASSERT_EQ(mkfifo((folder / "fifo.gguf").c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder / "fifo.gguf"), {"not a regular file"}));
  EXPECT_TRUE(fails_with(CheckpointFiles::open("/dev/zero"), {"not a regular file"}));
  fs::remove(folder / "fifo.gguf");
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder.path()), {"no *.safetensors or *.gguf"}));
  EXPECT_EQ(CheckpointFiles::open(folder.path(), {.need_tensors = false})->container(), ContainerKind::kNone);
}

TEST(CheckpointFilesHostile, C50PickleIsNeverLoaded) {
  const TempFolder folder;
  save(folder / "pytorch_model.bin", "PK\x03\x04....");
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder.path()),
                         {"pytorch_model.bin", "pickle is never loaded; convert to safetensors"}));
  EXPECT_TRUE(fails_with(CheckpointFiles::open(folder / "pytorch_model.bin"), {"pickle is never loaded"}));
}

TEST(CheckpointFilesHostile, C32FileThatChanges) {
  const TempFolder folder;
  GgufBuilder gguf;
  gguf.f32_tensor("a", {1}, {1});
  gguf.save(folder / "m.gguf");
  const auto checkpoint = CheckpointFiles::open(folder / "m.gguf");
  ASSERT_TRUE(checkpoint);
  EXPECT_TRUE(checkpoint->check_unchanged());
  gguf.f32_tensor("b", {1}, {1});
  gguf.save(folder / "m.gguf");
  EXPECT_TRUE(fails_with(checkpoint->check_unchanged(), {"m.gguf", "file changed while loading"}));
}

// Larger than the machine's memory, made of holes: the header is all that is read.
TEST(CheckpointFiles, C47SparseFile) {
  const TempFolder folder;
  constexpr std::uint64_t kSize = 1ULL << 40U;
  const std::string json = fmt::format(R"({{"x":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", kSize);
  save(folder / "m.safetensors", SafetensorsBuilder::from_header(json, ""));
  std::error_code error;
  fs::resize_file(folder / "m.safetensors", 8 + json.size() + kSize, error);
  if (error) GTEST_SKIP() << "this file system has no files of 1 TiB: " << error.message();
  const auto checkpoint = CheckpointFiles::open(folder / "m.safetensors");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->find("x")->extent.size, kSize);
}

}  // namespace
}  // namespace vernier
