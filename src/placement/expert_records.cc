#include "placement/expert_records.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/packed_weight.h"

namespace vernier {
namespace {

/// Gathered at a time: enough to keep a bus busy, little enough to start soon.
constexpr std::uint64_t kBatchBytes = std::uint64_t{24} << 20;

std::span<const float> bias_of(const std::vector<std::span<const float>>& biases, std::size_t expert) {
  return biases.empty() ? std::span<const float>() : biases[expert];
}

std::span<const float> moved(std::span<const float> values, const std::byte* from, const std::byte* to) {
  if (values.empty()) return values;
  return {reinterpret_cast<const float*>(to + (reinterpret_cast<const std::byte*>(values.data()) - from)),
          values.size()};
}

std::uint64_t size_of(const Backend& device, const ExpertWeights& bank, std::size_t e) {
  std::uint64_t bytes = 0;
  for (const auto* weights : {&bank.gate, &bank.up, &bank.down}) bytes += device.record_bytes((*weights)[e]);
  for (const auto* biases : {&bank.gate_bias, &bank.up_bias, &bank.down_bias}) {
    bytes += align_record(bias_of(*biases, e).size_bytes());
  }
  return bytes;
}

}  // namespace

Status ExpertRecords::add(std::int32_t layer, const ExpertWeights& bank) {
  const auto index = static_cast<std::size_t>(layer);
  if (banks_.size() <= index) banks_.resize(index + 1);
  if (!banks_[index].experts.empty()) return fail(ErrorCode::kInternal, "layer {} has two banks of experts", layer);
  std::vector<std::uint64_t> offsets;
  std::uint64_t total = 0;
  for (std::size_t e = 0; e < bank.gate.size(); ++e) {
    offsets.push_back(total);
    const std::uint64_t size = size_of(device_, bank, e);
    largest_record_ = std::max(largest_record_, size);
    total += size;
  }
  const bool keeps = store_ == ExpertStore::kMemory;
  if (keeps) {
    VN_ASSIGN(banks_[index].memory, device_.allocate_host(total));
  }
  auto* const memory = static_cast<std::byte*>(banks_[index].memory.data());
  for (std::size_t e = 0; e < offsets.size(); ++e) {
    Expert expert;
    if (keeps) {
      VN_ASSIGN(expert, pack(bank, e, memory + offsets[e]));
    }
    expert.record.size_bytes = (e + 1 < offsets.size() ? offsets[e + 1] : total) - offsets[e];
    banks_[index].experts.push_back(std::move(expert));
  }
  num_records_ += static_cast<std::int64_t>(offsets.size());
  num_experts_ = std::max(num_experts_, static_cast<std::int32_t>(offsets.size()));
  return {};
}

Result<ExpertRecords::Expert> ExpertRecords::pack(const ExpertWeights& bank, std::size_t e, std::byte* to) {
  Expert expert;
  expert.record.data = to;
  const auto weight = [&](const Weight& host) -> Result<Weight> {
    VN_ASSIGN(Weight packed, device_.pack(host, to));
    to += device_.record_bytes(host);
    return packed;
  };
  VN_ASSIGN(expert.gate, weight(bank.gate[e]));
  VN_ASSIGN(expert.up, weight(bank.up[e]));
  VN_ASSIGN(expert.down, weight(bank.down[e]));
  const auto bias = [&](const std::vector<std::span<const float>>& biases) {
    const std::span<const float> values = bias_of(biases, e);
    if (values.empty()) return values;
    std::memcpy(to, values.data(), values.size_bytes());
    const std::span<const float> packed(reinterpret_cast<const float*>(to), values.size());
    to += align_record(values.size_bytes());
    return packed;
  };
  expert.gate_bias = bias(bank.gate_bias);
  expert.up_bias = bias(bank.up_bias);
  expert.down_bias = bias(bank.down_bias);
  return expert;
}

Status ExpertRecords::reserve_staging(std::int64_t count) {
  if (store_ == ExpertStore::kMemory || places()) return {};
  num_staging_ = count;
  VN_ASSIGN(staging_, device_.allocate_host(static_cast<std::size_t>(count) * largest_record_));
  return {};
}

Result<ExpertRecords::Record> ExpertRecords::fetch(std::int32_t layer, std::int32_t expert, const ExpertWeights& bank) {
  const auto e = static_cast<std::size_t>(expert);
  Expert& found = banks_[static_cast<std::size_t>(layer)].experts[e];
  if (store_ == ExpertStore::kMemory) return found.record;
  if (staging_is_full()) return fail(ErrorCode::kInternal, "no room to stage an expert");
  const std::uint64_t size = found.record.size_bytes;
  const auto at = static_cast<std::size_t>(staged_) * largest_record_;
  VN_ASSIGN(found, pack(bank, e, static_cast<std::byte*>(staging_.data()) + at));
  found.record.size_bytes = size;
  ++staged_;
  return found.record;
}

namespace {

/// A part of an expert on its way from the file into its record.
struct Leg {
  const Weight* weight = nullptr;
  std::span<const float> bias = {};  ///< where it's no weight
  std::size_t staged_at = 0;
  std::byte* record = nullptr;

  [[nodiscard]] RecordPlacer::Part stage(std::byte* memory) const {
    std::byte* const to = memory + staged_at;
    if (weight != nullptr) return {pack_as_stored(*weight, to), weight, {}, record};
    std::memcpy(to, bias.data(), bias.size_bytes());
    return {{}, nullptr, {to, bias.size_bytes()}, record};
  }
};

/// Calls body(leg) for the parts of an expert in the order of its record, which begins at `record`.
template <class Body>
void for_each_leg(const Backend& device, const ExpertWeights& bank, std::size_t e, std::byte* record, Body body) {
  for (const auto* weights : {&bank.gate, &bank.up, &bank.down}) {
    body(Leg{.weight = &(*weights)[e], .record = record});
    record += device.record_bytes((*weights)[e]);
  }
  for (const auto* biases : {&bank.gate_bias, &bank.up_bias, &bank.down_bias}) {
    const std::span<const float> bias = bias_of(*biases, e);
    if (bias.empty()) continue;
    body(Leg{.bias = bias, .record = record});
    record += align_record(bias.size_bytes());
  }
}

}  // namespace

/// Gathers the stored bytes of some experts with all threads while the device copies those before, and has them laid
/// out.
Status ExpertRecords::place_batch(const ExpertWeights& bank, std::span<const Arrival> arrivals) {
  std::vector<Leg> legs;
  std::size_t size = 0;
  for (const Arrival& arrival : arrivals) {
    for_each_leg(device_, bank, static_cast<std::size_t>(arrival.expert), arrival.slot, [&](Leg leg) {
      leg.staged_at = size;
      size += leg.weight != nullptr ? stored_bytes(*leg.weight) : align_record(leg.bias.size_bytes());
      legs.push_back(leg);
    });
  }
  VN_ASSIGN(std::byte* const memory, placer_->stage(size));
  if (gatherers_ == nullptr) gatherers_ = std::make_unique<ThreadPool>(num_threads_);
  std::vector<RecordPlacer::Part> parts(legs.size());
  gatherers_->parallel_for(std::ssize(legs), [&](std::int64_t begin, std::int64_t end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      parts[i] = legs[i].stage(memory);
    }
  });
  return placer_->place(parts, size);
}

Status ExpertRecords::place(std::int32_t layer, const ExpertWeights& bank, std::span<const Arrival> arrivals) {
  if (arrivals.empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  const auto batch = std::max<std::size_t>(kBatchBytes / std::max<std::uint64_t>(largest_record_, 1), 1);
  for (std::size_t i = 0; i < arrivals.size(); i += batch) {
    VN_TRY(place_batch(bank, arrivals.subspan(i, std::min(batch, arrivals.size() - i))));
  }
  VN_ASSIGN(const std::vector<Weight> weights, placer_->finish());
  if (weights.size() != 3 * arrivals.size()) return fail(ErrorCode::kInternal, "records got lost on their way");
  std::uint64_t bytes = 0;
  auto weight = weights.begin();
  for (const Arrival& arrival : arrivals) {
    const auto e = static_cast<std::size_t>(arrival.expert);
    Expert& expert = banks_[static_cast<std::size_t>(layer)].experts[e];
    expert.record.data = arrival.slot;
    bytes += expert.record.size_bytes;
    expert.gate = *weight++;
    expert.up = *weight++;
    expert.down = *weight++;
    std::vector<std::span<const float>> biases;
    for_each_leg(device_, bank, e, arrival.slot, [&](const Leg& leg) {
      if (leg.weight == nullptr) biases.emplace_back(reinterpret_cast<const float*>(leg.record), leg.bias.size());
    });
    auto bias = biases.begin();
    expert.gate_bias = bias_of(bank.gate_bias, e).empty() ? std::span<const float>() : *bias++;
    expert.up_bias = bias_of(bank.up_bias, e).empty() ? std::span<const float>() : *bias++;
    expert.down_bias = bias_of(bank.down_bias, e).empty() ? std::span<const float>() : *bias++;
  }
  bytes_per_second_ =
      static_cast<double>(bytes) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

void ExpertRecords::append_at(std::int32_t layer, std::int32_t expert, const std::byte* slot, ExpertWeights& to) const {
  const Expert& from = banks_[static_cast<std::size_t>(layer)].experts[static_cast<std::size_t>(expert)];
  const std::byte* const base = from.record.data;
  to.gate.push_back(moved_weight(from.gate, base, slot));
  to.up.push_back(moved_weight(from.up, base, slot));
  to.down.push_back(moved_weight(from.down, base, slot));
  to.gate_bias.push_back(moved(from.gate_bias, base, slot));
  to.up_bias.push_back(moved(from.up_bias, base, slot));
  to.down_bias.push_back(moved(from.down_bias, base, slot));
}

ExpertSlotsSetup::Bank ExpertRecords::at_home(std::int32_t layer) const {
  ExpertSlotsSetup::Bank bank;
  const auto& experts = banks_[static_cast<std::size_t>(layer)].experts;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const Record& record = experts[e].record;
    bank.records.push_back({record.data, record.size_bytes});
    append_at(layer, static_cast<std::int32_t>(e), record.data, bank.experts);
  }
  return bank;
}

}  // namespace vernier
