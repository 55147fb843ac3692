#include "placement/record_stream.h"

#include <algorithm>
#include <cstring>

#include "backend/packed_weight.h"
#include "format/stored_rows.h"

namespace vernier {
namespace {

/// A parcel: enough to keep a bus busy, little enough to start soon.
constexpr std::uint64_t kParcelBytes = std::uint64_t{24} << 20;
/// One is filled while the other is copied; as many are kept for experts that nobody foresaw.
constexpr std::int32_t kFewestParcels = 2;
/// Enough for a layer of experts that fill a parcel each, as few layers have more of them.
constexpr std::int32_t kMostParcels = 64;
/// What a thread gathers at a time.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
/// Between page-locked bytes as many others are copied as well rather than begin a new copy.
constexpr std::ptrdiff_t kCopiedGap = 4096;
/// Between weights as many bytes are page-locked as well: less than a page could not be left out.
constexpr std::ptrdiff_t kLockedGap = 65536;

using Bytes = std::span<const std::byte>;

const std::byte* end_of(Bytes bytes) { return bytes.data() + bytes.size(); }

void add_rows(const StoredRows& rows, std::vector<Bytes>& to) {
  if (rows.size() == 0) return;
  to.emplace_back(rows.data, static_cast<std::size_t>((rows.rows - 1) * rows.stride + rows.row_bytes));
}

/// Where a weight's bytes lie.
void add_weight(const Weight& weight, std::vector<Bytes>& to) {
  add_rows(code_rows(weight), to);
  add_rows(scale_rows(weight), to);
}

/// In the order of addresses, those together that overlap or have at most `gap` bytes between them.
std::vector<Bytes> merged(std::vector<Bytes> spans, std::ptrdiff_t gap) {
  std::sort(spans.begin(), spans.end(), [](Bytes a, Bytes b) { return a.data() < b.data(); });
  std::vector<Bytes> result;
  for (const Bytes span : spans) {
    if (!result.empty() && span.data() <= end_of(result.back()) + gap) {
      const std::byte* const first = result.back().data();
      result.back() = {first, std::max(end_of(result.back()), end_of(span))};
    } else {
      result.push_back(span);
    }
  }
  return result;
}

}  // namespace

std::vector<RecordPart> parts_of(const Backend& device, const ExpertWeights& bank, std::size_t expert) {
  std::vector<RecordPart> parts;
  std::uint64_t at = 0;
  std::size_t which = 0;
  for (const auto* weights : {&bank.gate, &bank.up, &bank.down}) {
    parts.push_back({which++, &(*weights)[expert], {}, at});
    at += device.record_bytes((*weights)[expert]);
  }
  for (const auto* biases : {&bank.gate_bias, &bank.up_bias, &bank.down_bias}) {
    const std::span<const float> bias = biases->empty() ? std::span<const float>() : (*biases)[expert];
    if (!bias.empty()) parts.push_back({which, nullptr, bias, at});
    at += align_record(bias.size_bytes());
    ++which;
  }
  return parts;
}

void RecordStream::set_record_bytes(std::uint64_t largest) {
  const std::uint64_t record = std::max<std::uint64_t>(largest, 1);
  parcel_experts_ = static_cast<std::int64_t>(std::max<std::uint64_t>(kParcelBytes / record, 1));
  const std::uint64_t affordable = options_.ahead_bytes / (static_cast<std::uint64_t>(parcel_experts_) * record);
  num_parcels_ = static_cast<std::int32_t>(std::clamp<std::uint64_t>(affordable, kFewestParcels, kMostParcels));
}

void RecordStream::lock(std::span<const ExpertWeights* const> banks, std::uint64_t most_bytes) {
  std::vector<Bytes> spans;
  for (const ExpertWeights* bank : banks) {
    for (const auto* weights : {&bank->gate, &bank->up, &bank->down}) {
      for (const Weight& weight : *weights) add_weight(weight, spans);
    }
  }
  spans = merged(std::move(spans), kLockedGap);
  std::uint64_t bytes = 0;
  for (const Bytes span : spans) bytes += span.size();
  if (bytes > most_bytes) return;
  std::vector<Buffer> locks;
  for (const Bytes span : spans) {
    auto locked = placer_.lock(span);
    if (!locked) return;
    locks.push_back(*std::move(locked));
  }
  locks_ = std::move(locks);
}

/// Has a parcel's bytes copied: from where they lie, or gathered while the device copies parcels before.
Status RecordStream::send(const Parcel& parcel, const ExpertWeights& bank) {
  std::vector<Bytes> spans;
  std::vector<Bytes> biases;
  for (const std::int32_t expert : parcel.experts) {
    for (const RecordPart& part : parts_of(device_, bank, static_cast<std::size_t>(expert))) {
      if (part.weight != nullptr) {
        add_weight(*part.weight, spans);
      } else {
        biases.push_back(std::as_bytes(part.bias));
      }
    }
  }
  std::vector<RecordPlacer::Run> runs;
  std::size_t staged = 0;
  for (const Bytes bytes : merged(std::move(spans), is_locked() ? kCopiedGap : 0)) {
    runs.push_back({bytes, is_locked() ? bytes.data() : nullptr});
    if (!is_locked()) staged += align_record(bytes.size());
  }
  for (const Bytes bytes : merged(std::move(biases), 0)) {
    runs.push_back({bytes, nullptr});
    staged += align_record(bytes.size());
  }
  if (staged > 0) {
    VN_ASSIGN(std::byte* const memory, placer_.stage(parcel.number, staged));
    gather(runs, memory);
  }
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.bytes.data() < b.bytes.data(); });
  return placer_.send(parcel.number, runs);
}

/// Copies the runs that have no source into staging memory, one behind the other.
void RecordStream::gather(std::span<RecordPlacer::Run> runs, std::byte* memory) {
  struct Piece {
    std::byte* to;
    Bytes from;
  };
  std::vector<Piece> pieces;
  for (RecordPlacer::Run& run : runs) {
    if (run.source != nullptr) continue;
    run.source = memory;
    for (std::size_t at = 0; at < run.bytes.size(); at += kPieceBytes) {
      pieces.push_back({memory + at, run.bytes.subspan(at, std::min(kPieceBytes, run.bytes.size() - at))});
    }
    memory += align_record(run.bytes.size());
  }
  const auto copy = [&](std::int64_t begin, std::int64_t end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      std::memcpy(pieces[i].to, pieces[i].from.data(), pieces[i].from.size());
    }
  };
  if (is_locked()) return copy(0, std::ssize(pieces), 0);  // biases: not worth waking anybody
  if (gatherers_ == nullptr) gatherers_ = std::make_unique<ThreadPool>(options_.num_threads);
  gatherers_->parallel_for(std::ssize(pieces), copy);
}

/// Places those of `arrivals` that the parcel has.
Status RecordStream::place_from(Parcel& parcel, const ExpertWeights& bank, std::span<const Arrival> arrivals,
                                std::vector<Arrival>& order) {
  std::vector<RecordPlacer::Part> placed;
  for (const Arrival& arrival : arrivals) {
    const auto found = std::find(parcel.experts.begin(), parcel.experts.end(), arrival.expert);
    if (found == parcel.experts.end()) continue;
    parcel.experts.erase(found);
    order.push_back(arrival);
    for (const RecordPart& part : parts_of(device_, bank, static_cast<std::size_t>(arrival.expert))) {
      placed.push_back({.host = part.weight,
                        .known = part.weight != nullptr ? arrival.known[part.which] : nullptr,
                        .raw = std::as_bytes(part.bias),
                        .record = arrival.slot + part.at});
    }
  }
  return placed.empty() ? Status() : placer_.place(parcel.number, placed);
}

/// The next number in turn of a parcel that isn't waiting to be placed.
std::int32_t RecordStream::free_number() {
  const auto waits = [&](std::int32_t number) {
    return std::any_of(ahead_.begin(), ahead_.end(), [&](const Parcel& parcel) { return parcel.number == number; });
  };
  do {
    last_number_ = (last_number_ + 1) % num_parcels_;
  } while (waits(last_number_));
  return last_number_;
}

/// Forgets parcels that have nothing for `layer`.
void RecordStream::keep_ahead(std::int32_t layer) {
  std::erase_if(ahead_, [&](const Parcel& parcel) { return parcel.layer != layer || parcel.experts.empty(); });
}

Result<std::vector<RecordStream::Arrival>> RecordStream::place(std::int32_t layer, const ExpertWeights& bank,
                                                               std::span<const Arrival> arrivals) {
  keep_ahead(layer);
  std::vector<Arrival> order;
  std::vector<std::int32_t> sent;
  for (Parcel& parcel : ahead_) {
    sent.insert(sent.end(), parcel.experts.begin(), parcel.experts.end());
    VN_TRY(place_from(parcel, bank, arrivals, order));
  }
  keep_ahead(layer);
  std::vector<std::int32_t> rest;
  for (const Arrival& arrival : arrivals) {
    if (std::find(sent.begin(), sent.end(), arrival.expert) == sent.end()) rest.push_back(arrival.expert);
  }
  const auto most = static_cast<std::size_t>(parcel_experts_);
  for (std::size_t i = 0; i < rest.size(); i += most) {
    const auto first = rest.begin() + static_cast<std::ptrdiff_t>(i);
    Parcel parcel = {
        free_number(), layer, {first, first + static_cast<std::ptrdiff_t>(std::min(most, rest.size() - i))}};
    VN_TRY(send(parcel, bank));
    VN_TRY(place_from(parcel, bank, arrivals, order));
  }
  return order;
}

Status RecordStream::send_ahead(std::int32_t layer, const ExpertWeights& bank, std::span<const std::int32_t> experts) {
  ahead_.clear();
  const auto most = static_cast<std::size_t>(parcel_experts_);
  for (std::size_t i = 0; i < experts.size() && std::ssize(ahead_) + kFewestParcels < num_parcels_; i += most) {
    const auto taken = experts.subspan(i, std::min(most, experts.size() - i));
    Parcel parcel = {free_number(), layer, {taken.begin(), taken.end()}};
    const Status sent = send(parcel, bank);
    if (!sent && sent.error().code == ErrorCode::kOutOfMemory) {  // somebody else has it: fewer will do
      num_parcels_ = std::max(parcel.number, kFewestParcels);
      return {};
    }
    VN_TRY(sent);
    ahead_.push_back(std::move(parcel));
  }
  return {};
}

}  // namespace vernier
