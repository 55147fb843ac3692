// Looking into a checkpoint without running it: what `vernier inspect` prints. Reads headers and configuration only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vernier/error.h"

namespace vernier {

struct InspectOptions {
  std::filesystem::path model;  ///< as EngineOptions::model
  bool lenient = false;         ///< unknown tensors are warnings
  bool fit = false;             ///< add a memory plan for `device`
  std::string device = "auto";
  std::string kv = "bf16";    ///< cache elements: of the memory plan, and whether scales of an FP8 cache are used
  std::int32_t context = 0;   ///< for the memory plan; 0: the model's, at most 8192
  bool list_tensors = false;  ///< fill Inspection::tensors
  bool check_blocks = false;  ///< read all weights and look for invalid codes and scales
  std::vector<std::filesystem::path> allowed_roots;
};

struct TensorSummary {
  std::string name;
  std::string type;  ///< as the container calls it: "BF16", "q4_0", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::string file;
  std::uint64_t offset = 0;
};

struct FormatSummary {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

struct FitSummary {
  std::string device;
  std::uint64_t weights_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;
  std::uint64_t state_bytes_per_sequence = 0;
  std::int64_t context = 0;
  std::uint64_t needed_bytes = 0;
  std::uint64_t available_bytes = 0;
  std::int64_t largest_context = 0;
  bool fits = false;
  // With a GPU, of a mixture whose experts don't fit into its memory:
  std::uint64_t expert_bytes = 0;          ///< of all experts
  std::uint64_t host_available_bytes = 0;  ///< host memory
  bool fits_without_experts = false;       ///< with --experts offload, hybrid or cpu
  std::string expert_store;                ///< what --expert-store auto takes: "memory" or "file"; else empty
};

struct Inspection {
  std::string name;
  std::string architecture;
  std::string container;
  std::string dialect;
  bool runnable = false;  ///< false: the family is known but can't run in this version
  std::uint64_t parameters = 0;
  std::int64_t layers = 0;
  std::int64_t mtp_layers = 0;
  std::int64_t context_length = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> experts;  ///< count, used per token
  std::uint64_t total_tensors = 0;
  std::uint64_t used_tensors = 0;
  std::map<std::string, std::uint64_t> ignored_tensors;  ///< reason -> count
  std::uint64_t refused_tensors = 0;
  std::uint64_t used_cache_scales = 0;  ///< of used_tensors: scales of an FP8 KV cache. Ignored ones are "kv-scale"
  std::map<std::string, FormatSummary> formats;
  std::uint64_t weight_bytes = 0;
  std::vector<std::string> warnings;
  std::vector<Error> problems;  ///< empty: every tensor is used or ignored for a stated reason
  std::vector<TensorSummary> tensors;
  std::optional<FitSummary> fit;
  std::vector<std::string> files;  ///< weight files in shard order
};

/// Opens, describes and accounts. An Error only when the files can't be understood at all; culprits of single tensors
/// are in Inspection::problems.
[[nodiscard]] Outcome<Inspection> inspect(const InspectOptions& options);

}  // namespace vernier
