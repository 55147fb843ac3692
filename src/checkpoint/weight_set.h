// From records to weights: finds every tensor a model asked for, recognises how its producer quantised it, and accounts
// for every tensor in the files. resolve() reads headers only; load() touches the weights' bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_spec.h"
#include "tensor/weight.h"

namespace vernier {

class CheckpointFiles;

struct FormatUse {
  std::uint64_t tensors = 0;  ///< one for a weight with all its scales, one for a stacked bank
  std::uint64_t bytes = 0;    ///< scales included
};

/// The account of a checkpoint: total == used + sum(ignored) + refused.
struct Accounting {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::map<std::string, std::uint64_t> ignored;  ///< reason -> tensors
  std::uint64_t refused = 0;
  std::map<std::string, FormatUse> formats;  ///< format name -> use
  std::string dialect;                       ///< plain, modelopt, compressed-tensors, fp8, gpt-oss, gguf
  std::uint64_t parameters = 0;              ///< of used weights, MTP included
  std::int64_t mtp_layers = 0;               ///< distinct layers of used specs with `mtp` set
  std::uint64_t cache_scales = 0;            ///< of `used`: scales of KV caches, which are no weights
  std::uint64_t weight_bytes = 0;            ///< bytes that stay resident
  std::uint64_t expert_bytes = 0;            ///< those of them in banks of experts, biases excluded
  std::vector<std::string> warnings;         ///< of this account; CheckpointFiles has its own
  std::vector<Error> problems;  ///< culprits in file order, at most 100 kept; empty: the checkpoint is right
};

struct ResolveOptions {
  bool lenient = false;  ///< unknown tensors become warnings
  /// The KV cache will be FP8: kCacheScale specs are matched. Otherwise such tensors are ignored as "kv-scale".
  bool use_cache_scales = false;
};

/// Everything decided from headers. Cheap to hold; keeps the files alive. Safe to read from any thread.
class ResolvedCheckpoint {
 public:
  struct Impl;
  explicit ResolvedCheckpoint(std::unique_ptr<Impl> decided);
  ~ResolvedCheckpoint();
  ResolvedCheckpoint(ResolvedCheckpoint&&) noexcept;
  ResolvedCheckpoint& operator=(ResolvedCheckpoint&&) noexcept;

  [[nodiscard]] const Accounting& accounting() const;
  /// True when some stored tensor was matched to `role` and is used.
  [[nodiscard]] bool has(std::string_view role) const;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Matches specs and ignore rules with the files' tensors. An Error is returned only when nothing can be said at all
/// (unknown quantisation method); culprits of single tensors are collected in accounting().problems.
[[nodiscard]] Result<ResolvedCheckpoint> resolve(const CheckpointFiles& files, std::span<const TensorSpec> specs,
                                                 std::span<const IgnoreRule> ignore, const ResolveOptions& options);

/// The loaded weights of a model, by role. Weights are views into the mapped files, which they keep alive; vectors are
/// converted to fp32.
class WeightSet {
 public:
  [[nodiscard]] bool has(std::string_view role) const;
  /// The matrix of a role: kInternal when absent (the caller asks has() for optional ones).
  [[nodiscard]] Result<Weight> matrix(std::string_view role) const;
  /// The experts' matrices of a bank.
  [[nodiscard]] Result<std::vector<Weight>> experts(std::string_view role) const;
  /// A vector's values (flattened, TensorSpec::add applied).
  [[nodiscard]] Result<std::vector<float>> vector(std::string_view role) const;

  std::unordered_map<std::string, std::vector<Weight>> matrices;
  std::unordered_map<std::string, std::vector<float>> vectors;
  std::vector<std::string> warnings;  ///< values that are legal but look like a mistake of the producer
};

struct LoadOptions {
  bool check_blocks = true;  ///< scan every block for codes and scales that no valid file holds
  int threads = 0;           ///< of the scan; 0: as many as the machine has
};

/// Builds the weights. Fails on the first problem of the account, on invalid second-level and cache scales, and
/// (check_blocks) on invalid blocks, naming tensor, row and block; also when a file changed meanwhile.
[[nodiscard]] Result<WeightSet> load(const ResolvedCheckpoint& resolved, const LoadOptions& options);

}  // namespace vernier
