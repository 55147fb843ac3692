// Writes the seeds of the container fuzz targets: `container_seeds FOLDER` fills FOLDER/gguf and FOLDER/safetensors.
// Small files, each with something the others lack, so that the fuzzer begins near every branch of the readers.
#include <cstdio>

#include "support/gguf_builder.h"
#include "support/safetensors_builder.h"

namespace vernier::test {
namespace {

void write_gguf_seeds(const std::filesystem::path& folder) {
  GgufBuilder keys;
  keys.u8("u8", 1).i8("i8", -1).u16("u16", 2).i16("i16", -2).u32("u32", 3).i32("i32", -3).f32("f32", 1.5F);
  keys.boolean("bool", true).u64("u64", 4).i64("i64", -4).f64("f64", 2.5).string("string", "text");
  keys.save(folder / "keys.gguf");

  GgufBuilder arrays;
  arrays.strings("tokens", {"a", "", "\xE4\xB8\xAD"}).f32_array("scores", {0, -1}).i32_array("types", {1, 3});
  arrays.bool_array("flags", {0, 1}).u8_array("bytes", {1, 2, 3});
  arrays.save(folder / "arrays.gguf");

  GgufBuilder tensors;
  tensors.f32_tensor("scalar", {}, {1});
  tensors.f32_tensor("norm", {3}, {1, 2, 3});
  tensors.tensor("q8_0", {32, 2}, 8, std::string(68, '\1'));
  tensors.tensor("experts", {64, 1, 2}, 40, std::string(72, '\2'));
  tensors.save(folder / "tensors.gguf");

  GgufBuilder aligned;
  aligned.u32("general.alignment", 64);
  aligned.alignment = 64;
  aligned.version = 2;
  aligned.pad_end = false;
  aligned.f32_tensor("a", {1}, {1});
  aligned.f32_tensor("b", {1}, {2});
  aligned.save(folder / "aligned.gguf");

  GgufBuilder split;
  split.u16("split.no", 0).u16("split.count", 3).i32("split.tensors.count", 5);
  split.save(folder / "split.gguf");
}

void write_safetensors_seeds(const std::filesystem::path& folder) {
  SafetensorsBuilder tensors;
  tensors.metadata("format", "pt");
  tensors.f32_tensor("scalar", {}, {1});
  tensors.tensor("codes", "U8", {2, 4}, "abcdefgh");
  tensors.tensor("packed", "F4", {2, 2}, "ab");
  tensors.tensor("empty", "BF16", {0, 7}, "");
  tensors.save(folder / "tensors.safetensors");

  save(folder / "escapes.safetensors",
       SafetensorsBuilder::from_header(
           R"({"\u0061\ud83d\ude00\n\"\\":{"shape":[1,1],"data_offsets":[0,1],"dtype":"F8_E4M3"}} )", "x"));
  save(folder / "unknown-field.safetensors",
       SafetensorsBuilder::from_header(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[{"x":[1.5e3,null,true,-0]},"s"]}})", "x"));
  save(folder / "index.json", shard_index_text({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}}));
}

}  // namespace
}  // namespace vernier::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: container_seeds FOLDER\n");
    return 64;
  }
  const std::filesystem::path folder(argv[1]);
  for (const char* name : {"gguf", "safetensors"}) std::filesystem::create_directories(folder / name);
  vernier::test::write_gguf_seeds(folder / "gguf");
  vernier::test::write_safetensors_seeds(folder / "safetensors");
  return 0;
}
