// A checkpoint that no file holds: the true shape of a published model with random weights, which goes through the same
// resolving and loading as one from disk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/synthetic_layout.h"
#include "runtime/opened_model.h"

namespace vernier::bench {

struct SyntheticOptions {
  std::string shape = {};      ///< a name of shape_list()
  std::int32_t layers = 0;     ///< 0: all
  std::string format = {};     ///< of matrices, as `inspect` calls formats; empty: as the published checkpoint has them
  std::string container = {};  ///< "gguf" or "safetensors"; empty: safetensors where that has the format
  std::uint64_t seed = 1;
  std::string file = {};  ///< holds the weights, so that they needn't fit into memory; empty: memory does
};

class SyntheticModel {
 public:
  /// Decides names, sizes and places. Takes address space, but no memory. kInvalidArgument for unknown shapes and
  /// formats, and for formats in which rows of the shape can't be stored.
  [[nodiscard]] static Result<SyntheticModel> plan(const SyntheticOptions& options);

  [[nodiscard]] const OpenedModel& opened() const { return *opened_; }
  /// Bytes of memory that fill() takes.
  [[nodiscard]] std::uint64_t size_bytes() const { return is_in_file_ ? 0 : bytes_.size(); }
  /// Writes all weights, unless a file had them, on `threads` threads (0: all usable cores). The bytes depend on shape,
  /// formats and seed alone.
  void fill(int threads);

 private:
  SyntheticModel() = default;
  [[nodiscard]] Status open(const SyntheticOptions& options, ContainerKind container, ModelDescription description,
                            const std::vector<TensorSpec>& specs);

  std::uint64_t seed_ = 1;
  bool is_in_file_ = false;
  bool is_filled_ = false;
  std::vector<PlannedTensor> tensors_;
  std::vector<std::uint64_t> offsets_;  // of each tensor in bytes_
  std::span<std::byte> bytes_;          // kept alive by the file in opened_
  std::unique_ptr<OpenedModel> opened_;
};

}  // namespace vernier::bench
