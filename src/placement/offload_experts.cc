#include "placement/offload_experts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "placement/detour_arrays.h"

namespace vernier {
namespace {

/// Rows up to which a step counts as decoding: there the host may take a share.
constexpr std::int64_t kDecodeRows = 8;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The experts that some token chose, each once, in the order of first choice. `seen` [experts] is -1 everywhere.
std::vector<std::int32_t> distinct(std::span<const std::int32_t> ids, std::vector<std::int32_t>& seen) {
  std::vector<std::int32_t> experts;
  for (const std::int32_t id : ids) {
    if (id < 0 || seen[static_cast<std::size_t>(id)] >= 0) continue;
    seen[static_cast<std::size_t>(id)] = 0;
    experts.push_back(id);
  }
  for (const std::int32_t id : experts) seen[static_cast<std::size_t>(id)] = -1;
  return experts;
}

/// `buffer` with room for `bytes`; nothing may use it at the time.
template <class Allocate>
Status grow(Buffer& buffer, std::size_t bytes, Allocate allocate) {
  if (buffer.size() >= bytes) return {};
  VN_ASSIGN(buffer, allocate(bytes));
  return {};
}

}  // namespace

Status OffloadExpertExecutor::add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) {
  top_k_ = std::max(top_k_, top_k);
  return records_.add(layer, bank);
}

Status OffloadExpertExecutor::prepare() {
  if (records_.num_records() == 0) return {};
  const std::uint64_t record = records_.largest_record();
  const std::int64_t affordable = static_cast<std::int64_t>(options_.slot_bytes / record);
  std::int64_t count = options_.num_slots > 0 ? std::min(options_.num_slots, affordable) : affordable;
  count = std::min(count, records_.num_records());
  if (count < top_k_) {
    return fail_with_hint(ErrorCode::kInvalidArgument, fmt::format("give --expert-cache {} or more", top_k_),
                          "the expert cache has room for {} experts of {} bytes, and a token chooses {}", count, record,
                          top_k_);
  }
  VN_ASSIGN(slots_, device_.allocate(static_cast<std::size_t>(count) * record));
  VN_ASSIGN(auto policy, create_eviction_policy(options_.policy, static_cast<std::int32_t>(count)));
  cache_ = std::make_unique<SlotCache>(records_.num_layers(), records_.num_experts(), static_cast<std::int32_t>(count),
                                       std::move(policy));
  VN_ASSIGN(lane_, device_.create_copy_lane());
  VN_TRY(records_.reserve_staging(std::max<std::int64_t>(options_.num_staged, 1)));
  place_.assign(static_cast<std::size_t>(records_.num_experts()), -1);
  return {};
}

Status OffloadExpertExecutor::run(std::int32_t layer, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  const bool may_split = options_.hybrid && args.x.rows <= kDecodeRows;
  const std::array<DetourArray, 3> arrays = {choices_array(args), weights_array(args), matrix_array(args.x)};
  const auto work = [&](std::span<std::byte* const> host) -> Status {
    // All work before has ended: from here on nothing reads a slot or an array of ids.
    records_.release_staged();
    Call call{layer,
              args,
              {reinterpret_cast<const std::int32_t*>(host[0]), static_cast<std::size_t>(args.x.rows * args.top_k)}};
    if (may_split) {
      call.weights = reinterpret_cast<const float*>(host[1]);
      call.x = reinterpret_cast<float*>(host[2]);
    }
    const auto start = std::chrono::steady_clock::now();
    VN_TRY(run_chosen(call));
    last_seconds_ = seconds_since(start);
    return {};
  };
  return vernier::run_on_host(device_, {std::span(arrays).first(may_split ? 3 : 1), /*returns_last=*/false, work});
}

Status OffloadExpertExecutor::run_chosen(const Call& call) {
  std::vector<std::int32_t> present;
  std::vector<std::int32_t> missing;
  for (const std::int32_t expert : distinct(call.ids, place_)) {
    (cache_->find(call.layer, expert) ? present : missing).push_back(expert);
  }
  if (call.x != nullptr) return run_hybrid(call, std::move(present), missing);
  return run_on_device(call, std::move(present), missing);
}

/// First what lies in slots, then what is missing in parts that leave the slots of the part before alone.
std::vector<OffloadExpertExecutor::Wave> OffloadExpertExecutor::plan_waves(
    std::vector<std::int32_t> present, std::span<const std::int32_t> missing) const {
  const auto slots = static_cast<std::size_t>(cache_->num_slots());
  const std::size_t half = std::max<std::size_t>(slots / 2, 1);
  std::vector<Wave> waves;
  if (!present.empty()) waves.push_back({std::move(present), {}, {}});
  while (!missing.empty()) {
    const std::size_t taken = waves.empty() ? 0 : waves.back().experts.size();
    const std::size_t room = taken < slots ? std::min(half, slots - taken) : half;
    const std::size_t count = std::min(room, missing.size());
    waves.push_back({{missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(count)}, {}, {}});
    missing = missing.subspan(count);
  }
  return waves;
}

Status OffloadExpertExecutor::upload_ids(const Call& call, std::span<const Wave> waves) {
  const std::size_t count = call.ids.size();
  const std::size_t bytes = waves.size() * count * sizeof(std::int32_t);
  VN_TRY(grow(host_ids_, bytes, [&](std::size_t size) { return device_.allocate_host(size); }));
  VN_TRY(grow(device_ids_, bytes, [&](std::size_t size) { return device_.allocate(size); }));
  auto* ids = static_cast<std::int32_t*>(host_ids_.data());
  for (const Wave& wave : waves) {
    std::int32_t next = 0;
    for (const std::int32_t expert : wave.experts) place_[static_cast<std::size_t>(expert)] = next++;
    for (const std::int32_t id : call.ids) *ids++ = id < 0 ? -1 : place_[static_cast<std::size_t>(id)];
    for (const std::int32_t expert : wave.experts) place_[static_cast<std::size_t>(expert)] = -1;
  }
  return lane_->copy(device_ids_.data(), host_ids_.data(), bytes);
}

/// Gives a wave's experts slots and enqueues the way of those that come anew.
Status OffloadExpertExecutor::admit(const Call& call, Wave& wave) {
  std::vector<ExpertRecords::Arrival> arrivals;
  std::vector<std::byte*> slots;
  for (const std::int32_t expert : wave.experts) {
    const SlotCache::Admission admission = cache_->admit(call.layer, expert);
    auto* const slot =
        static_cast<std::byte*>(slots_.data()) + static_cast<std::size_t>(admission.slot) * records_.largest_record();
    ++(admission.hit ? counters_.hits : counters_.copied);
    wave.slots.push_back(admission.slot);
    slots.push_back(slot);
    if (admission.hit) continue;
    arrivals.push_back({expert, slot});
    counters_.copied_bytes += records_.record_size(call.layer, expert);
  }
  if (records_.places()) {
    VN_TRY(records_.place(call.layer, *call.args.experts, arrivals));
  } else {
    for (const ExpertRecords::Arrival& arrival : arrivals) VN_TRY(copy_record(call, arrival));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    records_.append_at(call.layer, wave.experts[i], slots[i], wave.weights);
  }
  return {};
}

Status OffloadExpertExecutor::copy_record(const Call& call, const ExpertRecords::Arrival& arrival) {
  if (records_.staging_is_full()) {
    VN_TRY(lane_->lead_compute());
    VN_TRY(device_.synchronize());
    records_.release_staged();
  }
  VN_ASSIGN(const ExpertRecords::Record record, records_.fetch(call.layer, arrival.expert, *call.args.experts));
  return lane_->copy(arrival.slot, record.data, record.size_bytes);
}

Status OffloadExpertExecutor::compute(const Call& call, const Wave& wave, std::size_t index) {
  ExpertMlpArgs args = call.args;
  args.experts = &wave.weights;
  args.ids = static_cast<const std::int32_t*>(device_ids_.data()) + index * call.ids.size();
  return device_.expert_mlp(args);
}

/// While the device computes a wave, the experts of the next are copied into slots that no enqueued work reads: a copy
/// waits for the wave before the current one, and the current one's slots are pinned. Records that the device lays out
/// come in the order of its work, so they follow the current wave.
Status OffloadExpertExecutor::run_on_device(const Call& call, std::vector<std::int32_t> present,
                                            std::span<const std::int32_t> missing) {
  std::vector<Wave> waves = plan_waves(std::move(present), missing);
  if (waves.empty()) return {};
  VN_TRY(upload_ids(call, waves));
  VN_TRY(admit(call, waves.front()));
  for (std::size_t i = 0; i < waves.size(); ++i) {
    VN_TRY(lane_->lead_compute());
    Wave* const next = i + 1 < waves.size() ? &waves[i + 1] : nullptr;
    const bool beside = next != nullptr && !records_.places() &&
                        cache_->num_pinned() + static_cast<std::int64_t>(next->experts.size()) <= cache_->num_slots();
    if (beside) {
      VN_TRY(lane_->follow_compute());
      VN_TRY(admit(call, *next));
    }
    VN_TRY(compute(call, waves[i], i));
    for (const std::int32_t slot : waves[i].slots) cache_->unpin(slot);
    if (next != nullptr && !beside) {
      VN_TRY(lane_->follow_compute());
      VN_TRY(admit(call, *next));
    }
  }
  return {};
}

Status OffloadExpertExecutor::run_hybrid(const Call& call, std::vector<std::int32_t> present,
                                         std::span<const std::int32_t> missing) {
  const auto start = std::chrono::steady_clock::now();
  const auto count = static_cast<std::int64_t>(missing.size());
  const auto on_host = static_cast<std::size_t>(split_.host_share(count));
  const std::size_t fetched = missing.size() - on_host;
  VN_TRY(run_on_device(call, std::move(present), missing.first(fetched)));
  if (on_host > 0) VN_TRY(run_on_host(call, missing.subspan(fetched)));
  // Waiting for the device costs what it hides, so only steps that are being compared are timed.
  if (!split_.wants_time()) return {};
  VN_TRY(device_.synchronize());
  if (const double rate = lane_rate(); rate > 0.0) {
    split_.record_fetch(static_cast<double>(records_.largest_record()) / rate);
  }
  split_.record_step(seconds_since(start), count);
  return {};
}

double OffloadExpertExecutor::lane_rate() {
  if (records_.places()) return records_.bytes_per_second();
  return lane_ != nullptr ? lane_->bytes_per_second() : 0.0;
}

ExpertMoves OffloadExpertExecutor::moves() {
  return {.found = counters_.hits,
          .moved = counters_.copied,
          .on_host = counters_.on_host,
          .moved_bytes = counters_.copied_bytes,
          .lane_bytes_per_second = lane_rate()};
}

/// Computes `experts` on the host, and adds the result on the device.
Status OffloadExpertExecutor::run_on_host(const Call& call, std::span<const std::int32_t> experts) {
  const MatrixView y = call.args.y;
  const std::size_t bytes = static_cast<std::size_t>(y.rows * y.cols) * sizeof(float);
  VN_TRY(grow(partial_, bytes, [&](std::size_t size) { return device_.allocate_host(size); }));
  VN_TRY(grow(device_partial_, bytes, [&](std::size_t size) { return device_.allocate(size); }));
  ExpertMlpArgs args = call.args;  // args.experts are at home() already
  args.x = {call.x, args.x.rows, args.x.cols, args.x.cols};
  args.weights = call.weights;
  args.y = {static_cast<float*>(partial_.data()), y.rows, y.cols, y.cols};
  std::fill_n(args.y.data, y.rows * y.cols, 0.0F);
  std::vector<std::int32_t> ids(call.ids.begin(), call.ids.end());
  for (const std::int32_t expert : experts) place_[static_cast<std::size_t>(expert)] = expert;
  for (std::int32_t& id : ids) id = id < 0 ? -1 : place_[static_cast<std::size_t>(id)];
  for (const std::int32_t expert : experts) place_[static_cast<std::size_t>(expert)] = -1;
  args.ids = ids.data();
  const auto start = std::chrono::steady_clock::now();
  VN_TRY(host_->expert_mlp(args));
  split_.record_host(seconds_since(start), static_cast<std::int64_t>(experts.size()));
  counters_.on_host += static_cast<std::int64_t>(experts.size());

  const MatrixView sum{static_cast<float*>(device_partial_.data()), y.rows, y.cols, y.cols};
  VN_TRY(lane_->copy(sum.data, args.y.data, bytes));
  VN_TRY(lane_->lead_compute());
  return device_.combine({sum, y, 1.0F, 1.0F});
}

}  // namespace vernier
