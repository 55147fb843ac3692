// Fuzzes the GGUF reader: any bytes give an error or a file all of whose keys and tensors can be reached.
#include <cstdint>
#include <cstdlib>

#include "checkpoint/checkpoint_files.h"
#include "support/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vernier;
  const auto file = test::as_file({reinterpret_cast<const char*>(data), size}, "fuzz.gguf");
  for (const bool lenient : {false, true}) {
    const auto checkpoint = CheckpointFiles::from_gguf(file, {.lenient = lenient});
    if (!checkpoint) continue;
    for (const GgufEntry& entry : checkpoint->gguf()->entries()) {
      if (checkpoint->gguf()->find(entry.key) != &entry) std::abort();
      (void)checkpoint->gguf()->find_u64(entry.key);
      (void)checkpoint->gguf()->find_i64(entry.key);
      (void)checkpoint->gguf()->find_f64(entry.key);
      (void)checkpoint->gguf()->find_bool(entry.key);
      (void)checkpoint->gguf()->find_string(entry.key);
      (void)checkpoint->gguf()->find_integers(entry.key);
      (void)checkpoint->gguf()->find_floats(entry.key);
      (void)checkpoint->gguf()->find_bools(entry.key);
      const auto strings = checkpoint->gguf()->find_strings(entry.key);
      if (strings && *strings && (*strings)->views().size() != (*strings)->size()) std::abort();
    }
    for (const TensorRecord& record : checkpoint->tensors()) {
      if (checkpoint->find(record.name) != &record || !record.bytes()) std::abort();
    }
  }
  return 0;
}
