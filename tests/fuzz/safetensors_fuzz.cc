// Fuzzes the safetensors reader and the parser of the shard index with the same bytes: any give an error or records
// whose bytes can be reached and tile the data.
#include <cstdint>
#include <cstdlib>

#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "support/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vernier;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = test::as_file(text, "fuzz.safetensors");
  for (const bool lenient : {false, true}) {
    const auto read = SafetensorsFile::open(file, {.lenient = lenient});
    if (!read) continue;
    std::uint64_t total = 0;
    for (const TensorRecord& record : read->tensors()) {
      const auto bytes = record.bytes();
      if (!bytes) std::abort();
      total += bytes->size();
    }
    if (total > size) std::abort();
  }
  const auto index = parse_shard_index(text, ContainerLimits());
  if (index && index->shards.size() > index->entries.size()) std::abort();
  return 0;
}
