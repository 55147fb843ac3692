#include "checkpoint/tensor_groups.h"

#include <cstring>
#include <random>

namespace vernier {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

std::uint64_t random_seed() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32U | device();
}

}  // namespace

std::size_t SeededHash::operator()(std::string_view text) const {
  static const std::uint64_t kSeed = random_seed();
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  std::uint64_t hash = kSeed ^ text.size();
  while (text.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = mix(hash ^ word, kOdd ^ kSeed);
    text.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return static_cast<std::size_t>(mix(hash ^ rest, kOdd ^ kSeed));
}

TensorGroups::TensorGroups(std::span<const TensorRecord> records) : records_(records), entries_(records.size()) {
  first_.reserve(records.size() / 2);
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    const NameParts name = split_name(records[i].name);
    Entry& entry = entries_[i];
    entry.stem = name.stem;
    entry.part = name.part;
    ++counts_[static_cast<std::size_t>(name.part)];
    const auto [place, is_new] = first_.try_emplace(name.stem, i);
    if (is_new) continue;
    entry.next = place->second;
    place->second = i;
  }
}

TensorParts TensorGroups::parts(std::string_view stem) const {
  TensorParts parts;
  const auto first = first_.find(stem);
  if (first == first_.end()) return parts;
  for (std::uint32_t i = first->second; i != kNoTensor; i = entries_[i].next) {
    const TensorPart part = entries_[i].part;
    if (part == TensorPart::kForeign) continue;
    // Two spellings of one part ("x.weight_scale", "x_weight_scale") are kept apart by the caller through `twice`.
    if (parts[part] != kNoTensor && part != TensorPart::kInputScale && part != TensorPart::kCacheScale) parts.twice = i;
    parts[part] = i;
  }
  return parts;
}

std::uint32_t TensorGroups::find(std::string_view name) const {
  const auto first = first_.find(split_name(name).stem);
  if (first == first_.end()) return kNoTensor;
  for (std::uint32_t i = first->second; i != kNoTensor; i = entries_[i].next) {
    if (records_[i].name == name) return i;
  }
  return kNoTensor;
}

}  // namespace vernier
