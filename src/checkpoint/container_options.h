// Limits on what a container file may hold, and the options of opening one. Every limit of the readers is here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace vernier {

/// Upper bounds on counts and lengths that a file states about itself. A file beyond one is refused before anything is
/// allocated for it. `kContainerLimitNames` names the fields for the listing at start.
struct ContainerLimits {
  // GGUF.
  std::uint64_t gguf_keys = 65'536;
  std::uint64_t gguf_key_bytes = 65'535;
  std::uint64_t gguf_string_bytes = 16ULL << 20U;
  std::uint64_t gguf_array_elements = 16ULL << 20U;
  std::uint64_t gguf_tensors = 131'072;  ///< a file
  std::uint64_t gguf_dims = 4;
  std::uint64_t gguf_alignment = 1ULL << 20U;
  // safetensors.
  std::uint64_t safetensors_header_bytes = 100'000'000;
  std::uint64_t safetensors_dims = 8;  ///< vision towers have 5-D convolutions
  // Both.
  std::uint64_t tensor_name_bytes = 255;
  std::uint64_t shards = 4'096;
  std::uint64_t index_bytes = 256ULL << 20U;  ///< *.safetensors.index.json
  // Files beside the weights.
  std::uint64_t config_bytes = 16ULL << 20U;
  std::uint64_t tokenizer_bytes = 256ULL << 20U;
  std::uint64_t template_bytes = 256ULL << 10U;
};

/// One row of the listing of limits.
struct ContainerLimitName {
  const char* name;
  std::uint64_t ContainerLimits::*value;
};

inline constexpr ContainerLimitName kContainerLimitNames[] = {
    {"gguf-keys", &ContainerLimits::gguf_keys},
    {"gguf-key-bytes", &ContainerLimits::gguf_key_bytes},
    {"gguf-string-bytes", &ContainerLimits::gguf_string_bytes},
    {"gguf-array-elements", &ContainerLimits::gguf_array_elements},
    {"gguf-tensors", &ContainerLimits::gguf_tensors},
    {"gguf-dims", &ContainerLimits::gguf_dims},
    {"gguf-alignment", &ContainerLimits::gguf_alignment},
    {"safetensors-header-bytes", &ContainerLimits::safetensors_header_bytes},
    {"safetensors-dims", &ContainerLimits::safetensors_dims},
    {"tensor-name-bytes", &ContainerLimits::tensor_name_bytes},
    {"shards", &ContainerLimits::shards},
    {"index-bytes", &ContainerLimits::index_bytes},
    {"config-bytes", &ContainerLimits::config_bytes},
    {"tokenizer-bytes", &ContainerLimits::tokenizer_bytes},
    {"template-bytes", &ContainerLimits::template_bytes},
};

/// How to open a checkpoint.
struct OpenOptions {
  /// Turns refusals that cannot change a tensor's value (bytes behind the last tensor, unknown fields of a safetensors
  /// entry) into warnings.
  bool lenient = false;
  /// False: a folder without weights is fine (tokenizer and template are wanted, not the model).
  bool need_tensors = true;
  /// Folders that symbolic links in the model folder may point into, beside the model folder itself and the blobs
  /// folder of a hub cache.
  std::vector<std::filesystem::path> allowed_roots = {};
  ContainerLimits limits = {};
};

}  // namespace vernier
