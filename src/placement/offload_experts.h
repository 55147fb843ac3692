// `--experts offload` and `hybrid`: all experts in host memory, a cache of slots in the device's. The device computes
// experts that lie in slots; missing ones are copied into slots first, beside the work on those that are there. In
// hybrid the host computes some of the missing ones meanwhile.
//
// A device that can fills slots by itself in steps of few tokens (backend/expert_slots.h), of which the host then knows
// nothing: it asks for the books before a step that it takes part in, and tells the device what became of them after.
// In hybrid it takes part in steps of decoding while that makes them faster.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backend/expert_executor.h"
#include "placement/expert_records.h"
#include "placement/hybrid_split.h"
#include "placement/slot_cache.h"
#include "placement/step_lanes.h"

namespace vernier {

struct OffloadOptions {
  bool hybrid = false;
  std::int64_t num_slots = 0;       ///< at most; 0: as many as `slot_bytes` hold
  std::uint64_t slot_bytes = 0;     ///< device memory for slots
  std::string_view policy = "lru";  ///< create_eviction_policy()'s names
  ExpertStore store = ExpertStore::kMemory;
  int num_threads = 0;           ///< ExpertStore::kFile: threads that read the file, 0: all
  std::int64_t num_staged = 16;  ///< ExpertStore::kFile: records on their way to the device at a time, at least
  /// ExpertStore::kFile, where nothing but prompts comes: device memory for experts of the next layer, which begin
  /// their way before its router has chosen; 0: none do.
  std::uint64_t ahead_bytes = 0;
  std::uint64_t locked_bytes = 0;  ///< with them: most bytes of the file that may be page-locked
};

class OffloadExpertExecutor final : public ExpertExecutor {
 public:
  /// `device` outlives the executor. `host` holds the experts' weights and computes some of them in hybrid.
  OffloadExpertExecutor(Backend& device, std::shared_ptr<Backend> host, const OffloadOptions& options)
      : device_(device),
        host_(std::move(host)),
        options_(options),
        records_(device, options.store, {options.num_threads, options.ahead_bytes}) {}

  [[nodiscard]] Backend& home() override { return *host_; }
  [[nodiscard]] Status add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) override;
  /// kInvalidArgument with the number needed when there are fewer slots than a token chooses experts.
  [[nodiscard]] Status prepare() override;
  void begin_step(std::int64_t decode_rows) override;
  void end_step() override;
  [[nodiscard]] bool is_repeatable() const override { return device_slots_ != nullptr && !shares_step_; }
  [[nodiscard]] Status run(std::int32_t layer, const ExpertMlpArgs& args) override;
  [[nodiscard]] ExpertMoves moves() override;

  struct Counters {
    std::int64_t hits = 0;     ///< experts a step found in slots
    std::int64_t copied = 0;   ///< experts copied into slots
    std::int64_t on_host = 0;  ///< experts that the host computed
    std::uint64_t copied_bytes = 0;
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// What the last run() took on the host: choosing, and bringing experts on their way, for which it doesn't always
  /// wait.
  [[nodiscard]] double last_seconds() const { return last_seconds_; }
  [[nodiscard]] std::int32_t num_slots() const { return num_slots_; }

 private:
  /// Experts that one call of the device's kernels computes.
  struct Wave {
    std::vector<std::int32_t> experts;
    std::vector<std::int32_t> slots;  ///< of `experts`, once admitted
    ExpertWeights weights;            ///< likewise
  };
  /// One run(): its arguments, and the choices on the host; in a step that may be split, inputs and weights too.
  struct Call {
    std::int32_t layer;
    const ExpertMlpArgs& args;
    std::span<const std::int32_t> ids;
    const float* weights = nullptr;
    float* x = nullptr;
    SlotCache::Coming coming = SlotCache::Coming::kToStay;
  };

  [[nodiscard]] Status create_cache();
  [[nodiscard]] Status create_device_slots();
  [[nodiscard]] bool leaves_to_device(const ExpertMlpArgs& args) const;
  [[nodiscard]] std::int64_t device_uses();
  [[nodiscard]] Status read_books(std::uint32_t turn);
  [[nodiscard]] Status report_uses();
  [[nodiscard]] Status run_chosen(Call& call);
  [[nodiscard]] Status send_ahead(const Call& call, std::int64_t chosen);
  [[nodiscard]] std::vector<Wave> plan_waves(std::vector<std::int32_t> present,
                                             std::span<const std::int32_t> missing) const;
  [[nodiscard]] Status upload_ids(const Call& call, std::span<const Wave> waves);
  [[nodiscard]] Status admit(const Call& call, Wave& wave);
  [[nodiscard]] double lane_rate();
  [[nodiscard]] Status copy_record(const Call& call, const ExpertRecords::Arrival& arrival);
  [[nodiscard]] Status compute(const Call& call, const Wave& wave, std::size_t index);
  [[nodiscard]] Status run_on_device(const Call& call, std::vector<std::int32_t> present,
                                     std::span<const std::int32_t> missing);
  [[nodiscard]] Status run_hybrid(const Call& call, std::vector<std::int32_t> present,
                                  std::span<const std::int32_t> missing);
  [[nodiscard]] Status run_on_host(const Call& call, std::span<const std::int32_t> experts);

  Backend& device_;
  std::shared_ptr<Backend> host_;
  OffloadOptions options_;
  ExpertRecords records_;
  std::int32_t top_k_ = 0;
  std::int32_t num_slots_ = 0;
  std::unique_ptr<CopyLane> lane_;
  std::unique_ptr<SlotCache> cache_;
  Buffer slots_;
  std::unique_ptr<ExpertSlots> device_slots_;  ///< null: the host fills slots always
  std::uint32_t known_turn_ = 0;               ///< of the device's books, when cache_ was like them
  bool shares_step_ = false;                   ///< with device_slots_: the host takes part in this step all the same
  bool is_prompt_ = false;                     ///< the step that began last
  bool device_fills_prompt_ = false;           ///< it's one of many tokens, and the device fills slots in it
  bool prompts_pass_ = false;     ///< those that the device could do touch more experts than there are slots
  std::int64_t uses_before_ = 0;  ///< the device's, before that step
  StepLanes step_lanes_;
  std::chrono::steady_clock::time_point step_begin_;
  std::vector<SlotExpert> uses_;  ///< of a call, that the device doesn't know of
  HybridSplit split_;
  Counters counters_;
  double last_seconds_ = 0.0;

  // Working memory of a call.
  std::vector<std::int32_t> place_;  ///< [experts]: where a wave has the expert, or -1
  Buffer device_ids_;                ///< [waves, tokens, top_k]: the choices as places in a wave, or -1
  Buffer host_ids_;                  ///< the same, read by a copy that runs later
  Buffer partial_;                   ///< what the host computed, read by a copy that runs later
  Buffer device_partial_;
};

}  // namespace vernier
