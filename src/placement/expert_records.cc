#include "placement/expert_records.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "backend/packed_weight.h"

namespace vernier {

ExpertRecords::ExpertRecords(Backend& device, ExpertStore store, const RecordStream::Options& options)
    : device_(device), store_(store), streams_(options.ahead_bytes > 0) {
  auto* const placer = store == ExpertStore::kFile ? dynamic_cast<RecordPlacer*>(&device) : nullptr;
  if (placer != nullptr) stream_ = std::make_unique<RecordStream>(device, *placer, options);
}

namespace {

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
  if (streams_) banks_[index].weights = bank;
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

Status ExpertRecords::prepare_stream(std::uint64_t most_locked) {
  if (!places()) return {};
  stream_->set_record_bytes(largest_record_);
  if (!streams_) return {};
  std::vector<const ExpertWeights*> banks;
  for (const Bank& bank : banks_) {
    if (!bank.experts.empty()) banks.push_back(&bank.weights);
  }
  stream_->lock(banks, most_locked);
  return {};
}

Status ExpertRecords::place(std::int32_t layer, const ExpertWeights& given, std::span<const Arrival> arrivals) {
  if (arrivals.empty()) return {};
  const auto start = std::chrono::steady_clock::now();
  Bank& bank = banks_[static_cast<std::size_t>(layer)];
  const ExpertWeights& weights = streams_ ? bank.weights : given;
  std::vector<RecordStream::Arrival> wanted;
  std::uint64_t bytes = 0;
  for (const Arrival& arrival : arrivals) {
    const Expert& expert = bank.experts[static_cast<std::size_t>(arrival.expert)];
    bytes += expert.record.size_bytes;
    wanted.push_back({arrival.expert, arrival.slot});
    if (streams_ && expert.gate.present()) wanted.back().known = {&expert.gate, &expert.up, &expert.down};
  }
  VN_ASSIGN(const std::vector<RecordStream::Arrival> order, stream_->place(layer, weights, wanted));
  VN_ASSIGN(const std::vector<Weight> placed, stream_->finish());
  auto weight = placed.begin();
  for (const RecordStream::Arrival& arrival : order) {
    if (arrival.known[0] != nullptr) continue;
    if (placed.end() - weight < 3) return fail(ErrorCode::kInternal, "records got lost on their way");
    take(weights, arrival, {weight, weight + 3}, bank.experts[static_cast<std::size_t>(arrival.expert)]);
    weight += 3;
  }
  if (order.size() != arrivals.size()) return fail(ErrorCode::kInternal, "experts got lost on their way");
  bytes_per_second_ =
      static_cast<double>(bytes) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

/// What an expert is like in the slot that it came to.
void ExpertRecords::take(const ExpertWeights& bank, const RecordStream::Arrival& arrival,
                         std::span<const Weight> placed, Expert& expert) const {
  expert.record.data = arrival.slot;
  expert.gate = placed[0];
  expert.up = placed[1];
  expert.down = placed[2];
  const std::array<std::span<const float>*, 3> biases = {&expert.gate_bias, &expert.up_bias, &expert.down_bias};
  for (const RecordPart& part : parts_of(device_, bank, static_cast<std::size_t>(arrival.expert))) {
    if (part.weight != nullptr) continue;
    *biases[part.which - 3] = {reinterpret_cast<const float*>(arrival.slot + part.at), part.bias.size()};
  }
}

Status ExpertRecords::send_ahead(std::int32_t layer, std::span<const std::int32_t> experts) {
  return stream_->send_ahead(layer, banks_[static_cast<std::size_t>(layer)].weights, experts);
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
