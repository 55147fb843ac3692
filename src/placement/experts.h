// Where experts live and who computes them: `--experts`. Without a GPU there is one choice, the backend itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/expert_executor.h"

namespace vernier {

struct ExpertPlacement {
  std::string mode;  ///< what was chosen: "cpu", "fused", ...
  std::unique_ptr<ExpertExecutor> executor;
  bool on_device = true;  ///< all experts take memory of the device
  /// offload, hybrid: where experts are that aren't on the device: "memory" (a copy of all) or "file". Else empty.
  std::string_view store = {};
};

struct ExpertRequest {
  std::string_view mode = "auto";   ///< auto, fused, offload, hybrid or cpu
  std::string_view cache;           ///< offload, hybrid: "2GiB", "25%" or a number of experts; empty: all free memory
  std::string_view store = "auto";  ///< offload, hybrid: auto, memory or file
  BackendOptions host;              ///< of the CPU backend that computes experts beside a GPU
  std::uint64_t expert_bytes = 0;   ///< of all experts; 0: the model has none
  std::int64_t num_experts = 0;     ///< over all layers
  std::uint64_t free_bytes = 0;     ///< device memory that nothing but experts needs
};

/// Chooses an executor on `device`, which must outlive it. `auto` takes `fused` where the experts fit and no cache is
/// asked for, else `hybrid`.
/// Modes that need a GPU are kDevice on other backends; unknown modes and malformed cache sizes are kInvalidArgument.
[[nodiscard]] Result<ExpertPlacement> place_experts(const ExpertRequest& request, Backend& device);

/// "memory" or "file" for what was asked; auto takes a copy in memory where `available_bytes` of the host hold it and
/// leave an eighth. kInvalidArgument for other words.
[[nodiscard]] Result<std::string_view> choose_expert_store(std::string_view asked, std::uint64_t expert_bytes,
                                                           std::uint64_t available_bytes);

/// Bytes of host memory that may be page-locked where weights lie in it: of what is available or the process's own, as
/// far as its cgroups' limit allows, an eighth is left.
[[nodiscard]] std::uint64_t lockable_bytes(std::uint64_t available_bytes, std::uint64_t own_bytes,
                                           std::optional<std::uint64_t> limit);

/// Slots that `text` asks for; 0 for an empty one. `record_bytes`: what an expert takes.
[[nodiscard]] Result<std::int64_t> parse_expert_cache(std::string_view text, std::int64_t num_experts,
                                                      std::uint64_t record_bytes);

}  // namespace vernier
