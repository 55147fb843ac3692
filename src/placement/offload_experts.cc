#include "placement/offload_experts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "placement/detour_arrays.h"
#include "placement/prompt_lanes.h"

namespace vernier {
namespace {

/// Rows up to which a step counts as decoding: there the host may take a share.
constexpr std::int64_t kDecodeRows = StepLanes::kMostRows;
/// Rows up to which a device fills slots by itself. It copies before it computes, where the host's waves do both at a
/// time; so it's for steps in which computing takes next to nothing.
constexpr std::int64_t kMostDeviceRows = 128;
/// Rows from which a prompt is large enough for all of its layers to go the same way.
constexpr std::int64_t kAheadRows = PromptLanes::kManyRows;

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
  num_slots_ = static_cast<std::int32_t>(count);
  VN_TRY(create_cache());
  VN_TRY(create_device_slots());
  VN_ASSIGN(lane_, device_.create_copy_lane());
  VN_TRY(records_.prepare_stream(options_.locked_bytes));
  VN_TRY(records_.reserve_staging(std::max<std::int64_t>(options_.num_staged, 1)));
  place_.assign(static_cast<std::size_t>(records_.num_experts()), -1);
  return {};
}

Status OffloadExpertExecutor::create_cache() {
  VN_ASSIGN(auto policy, create_eviction_policy(options_.policy, num_slots_));
  cache_ = std::make_unique<SlotCache>(records_.num_layers(), records_.num_experts(), num_slots_, std::move(policy));
  return {};
}

/// Where the device can do it, and its books are like the host's.
Status OffloadExpertExecutor::create_device_slots() {
  auto* const able = dynamic_cast<ExpertSlotDevice*>(&device_);
  if (able == nullptr || options_.policy != "lru" || options_.store != ExpertStore::kMemory) return {};
  std::vector<ExpertSlotsSetup::Bank> banks;
  banks.reserve(static_cast<std::size_t>(records_.num_layers()));
  for (std::int32_t layer = 0; layer < records_.num_layers(); ++layer) banks.push_back(records_.at_home(layer));
  VN_ASSIGN(device_slots_, able->create_expert_slots({.banks = banks,
                                                      .slots = static_cast<std::byte*>(slots_.data()),
                                                      .slot_bytes = records_.largest_record(),
                                                      .num_slots = num_slots_}));
  return {};
}

/// Experts that the device has used so far, when all operations have ended.
std::int64_t OffloadExpertExecutor::device_uses() {
  const auto counters = device_slots_->counters();
  return counters ? counters->found + counters->moved : 0;  // a device that fails says so elsewhere
}

bool OffloadExpertExecutor::leaves_to_device(const ExpertMlpArgs& args) const {
  if (is_prompt_ && prompts_pass_ && args.x.rows > kDecodeRows) return false;
  const std::int64_t most = std::min<std::int64_t>(args.x.rows * args.top_k, std::ssize(args.experts->gate));
  return device_slots_ != nullptr && !shares_step_ && args.x.rows <= kMostDeviceRows && most <= num_slots_;
}

/// Makes cache_ what the device has made of it since.
Status OffloadExpertExecutor::read_books(std::uint32_t turn) {
  if (turn == known_turn_) return {};
  VN_ASSIGN(const std::vector<SlotExpert> residents, device_slots_->residents());
  VN_TRY(create_cache());
  for (const SlotExpert& resident : residents) cache_->fill(resident.slot, resident.layer, resident.expert);
  known_turn_ = turn;
  return {};
}

/// Tells the device of a call's uses: of a slot that had several experts in turn, only of the last.
Status OffloadExpertExecutor::report_uses() {
  std::vector<bool> is_known(static_cast<std::size_t>(num_slots_), false);
  std::vector<SlotExpert> last;
  for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
    if (is_known[static_cast<std::size_t>(use->slot)]) continue;
    is_known[static_cast<std::size_t>(use->slot)] = true;
    last.push_back(*use);
  }
  std::reverse(last.begin(), last.end());
  return device_slots_->record_uses(last);
}

void OffloadExpertExecutor::begin_step(std::int64_t decode_rows) {
  shares_step_ = options_.hybrid && device_slots_ != nullptr && step_lanes_.shares(decode_rows);
  is_prompt_ = decode_rows == 0;
  device_fills_prompt_ = false;
  if (is_prompt_ && device_slots_ != nullptr) uses_before_ = device_uses();
  step_begin_ = std::chrono::steady_clock::now();
}

void OffloadExpertExecutor::end_step() {
  step_lanes_.record(seconds_since(step_begin_));
  if (device_fills_prompt_) prompts_pass_ = device_uses() - uses_before_ > num_slots_;
  device_fills_prompt_ = false;
}

Status OffloadExpertExecutor::run(std::int32_t layer, const ExpertMlpArgs& args) {
  if (args.x.rows == 0) return {};
  if (leaves_to_device(args)) {
    device_fills_prompt_ = is_prompt_ && args.x.rows > kDecodeRows;
    return device_slots_->expert_mlp(layer, args);
  }
  const bool may_split = options_.hybrid && args.x.rows <= kDecodeRows;
  std::vector<DetourArray> arrays = {choices_array(args)};
  if (may_split) arrays.insert(arrays.end(), {weights_array(args), matrix_array(args.x)});
  if (device_slots_ != nullptr) arrays.push_back({device_slots_->turn(), 1, 1, 1});
  const auto work = [&](std::span<std::byte* const> host) -> Status {
    // All work before has ended: from here on nothing reads a slot or an array of ids.
    records_.release_staged();
    uses_.clear();
    Call call{layer,
              args,
              {reinterpret_cast<const std::int32_t*>(host[0]), static_cast<std::size_t>(args.x.rows * args.top_k)}};
    if (may_split) {
      call.weights = reinterpret_cast<const float*>(host[1]);
      call.x = reinterpret_cast<float*>(host[2]);
    }
    const auto start = std::chrono::steady_clock::now();
    if (device_slots_ != nullptr) VN_TRY(read_books(*reinterpret_cast<const std::uint32_t*>(host.back())));
    const Status computed = run_chosen(call);
    if (device_slots_ != nullptr) VN_TRY(report_uses());  // whatever became of it: slots have other experts now
    VN_TRY(computed);
    last_seconds_ = seconds_since(start);
    return {};
  };
  return vernier::run_on_host(device_, {arrays, /*returns_last=*/false, work});
}

Status OffloadExpertExecutor::run_chosen(Call& call) {
  std::vector<std::int32_t> present;
  std::vector<std::int32_t> missing;
  for (const std::int32_t expert : distinct(call.ids, place_)) {
    (cache_->find(call.layer, expert) ? present : missing).push_back(expert);
  }
  // A prompt goes through the layers in order. If it asks for more experts in all than there are slots, each of them
  // would be gone before the next prompt needs it; so most keep their slots, and the others pass through a few.
  const auto chosen = static_cast<std::int64_t>(present.size() + missing.size());
  const bool is_prompt = call.args.x.rows > kDecodeRows;
  const bool passes = is_prompt && chosen * records_.num_layers() > num_slots_;
  if (passes) call.coming = SlotCache::Coming::kPassing;
  if (is_prompt && call.args.x.rows <= kMostDeviceRows) prompts_pass_ = passes;
  if (call.x != nullptr) return run_hybrid(call, std::move(present), missing);
  if (options_.ahead_bytes > 0) std::sort(missing.begin(), missing.end());  // as they lie in the file
  VN_TRY(run_on_device(call, std::move(present), missing));
  return options_.ahead_bytes > 0 ? send_ahead(call, chosen) : Status();
}

/// Where a layer of a prompt has needed next to all of its experts, so will the next layer: they begin to come while
/// the device works on this one and on the next one's attention.
Status OffloadExpertExecutor::send_ahead(const Call& call, std::int64_t chosen) {
  const bool needs_all = chosen * 10 >= records_.num_experts(call.layer) * 9;
  std::int32_t next = call.layer + 1;
  while (next < records_.num_layers() && records_.num_experts(next) == 0) ++next;
  if (!records_.places() || call.args.x.rows < kAheadRows || !needs_all || next == records_.num_layers()) return {};
  std::vector<std::int32_t> coming;
  for (std::int32_t expert = 0; expert < records_.num_experts(next); ++expert) {
    if (!cache_->find(next, expert)) coming.push_back(expert);
  }
  return records_.send_ahead(next, coming);
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
    const SlotCache::Admission admission = cache_->admit(call.layer, expert, call.coming);
    auto* const slot =
        static_cast<std::byte*>(slots_.data()) + static_cast<std::size_t>(admission.slot) * records_.largest_record();
    ++(admission.hit ? counters_.hits : counters_.copied);
    wave.slots.push_back(admission.slot);
    if (device_slots_ != nullptr) uses_.push_back({admission.slot, call.layer, expert});
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
    if (beside) VN_TRY(lane_->follow_compute());
    // Before the next copies are enqueued: what this wave itself has to bring to the device would wait behind them.
    VN_TRY(compute(call, waves[i], i));
    if (beside) VN_TRY(admit(call, *next));
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
  const bool is_shared = shares_step_;  // because such steps have been faster, or to try that
  const auto on_host = static_cast<std::size_t>(is_shared ? split_.even_share(count) : split_.host_share(count));
  const std::size_t fetched = missing.size() - on_host;
  VN_TRY(run_on_device(call, std::move(present), missing.first(fetched)));
  if (on_host > 0) VN_TRY(run_on_host(call, missing.subspan(fetched)));
  // Waiting for the device costs what it hides, so only steps that are being compared are timed.
  const bool is_timed = !is_shared && split_.wants_time();
  if (!is_timed && !is_shared) return {};
  if (is_timed) VN_TRY(device_.synchronize());
  if (const double rate = lane_rate(); rate > 0.0) {
    split_.record_fetch(static_cast<double>(records_.largest_record()) / rate);
  }
  if (is_timed) split_.record_step(seconds_since(start), count);
  return {};
}

double OffloadExpertExecutor::lane_rate() {
  if (records_.places()) return records_.bytes_per_second();
  return lane_ != nullptr ? lane_->bytes_per_second() : 0.0;
}

ExpertMoves OffloadExpertExecutor::moves() {
  ExpertMoves moves = {.found = counters_.hits,
                       .moved = counters_.copied,
                       .on_host = counters_.on_host,
                       .moved_bytes = counters_.copied_bytes,
                       .lane_bytes_per_second = lane_rate()};
  if (device_slots_ == nullptr) return moves;
  // Without the device's numbers, the host's: a device that fails says so elsewhere.
  const auto device = device_slots_->counters();
  if (!device) return moves;
  moves.found += device->found;
  moves.moved += device->moved;
  moves.moved_bytes += device->moved_bytes;
  if (device->bytes_per_second > 0.0) moves.lane_bytes_per_second = device->bytes_per_second;
  return moves;
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
