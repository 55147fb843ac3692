// Two flat hash tables for look-ups in large vocabularies. The hash has a seed of the process, so that a file can't be
// made to collide.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vernier::text_internal {

inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

inline std::uint64_t hash_seed() {
  static const std::uint64_t kSeed = [] {
    static const char kHere = 0;
    const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&kHere));
    return mix_bits(now ^ 0x9E3779B97F4A7C15U, address ^ 0xC2B2AE3D27D4EB4FU) | 1U;
  }();
  return kSeed;
}

inline std::uint64_t hash_integer(std::uint64_t value) {
  return mix_bits(mix_bits(value ^ hash_seed(), 0x9E3779B97F4A7C15U), 0xD6E8FEB86659FD93U);
}

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = hash_seed() ^ text.size();
  while (!text.empty()) {
    std::uint64_t word = 0;
    const std::size_t count = text.size() < sizeof word ? text.size() : sizeof word;
    std::memcpy(&word, text.data(), count);
    hash = mix_bits(hash ^ word, 0x9E3779B97F4A7C15U);
    text.remove_prefix(count);
  }
  return mix_bits(hash, 0xD6E8FEB86659FD93U);
}

/// From 64-bit keys to values. Sized once: at most `capacity` insertions.
template <class Value>
class IntegerMap {
 public:
  explicit IntegerMap(std::size_t capacity = 0) : slots_(std::bit_ceil(capacity * 2 + 1)) {}

  /// False, and nothing changes, when the key is there already.
  bool insert(std::uint64_t key, Value value) {
    Slot& slot = slots_[find_slot(key)];
    if (slot.used) return false;
    slot = {key, value, true};
    return true;
  }
  [[nodiscard]] const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[find_slot(key)];
    return slot.used ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Value value{};
    bool used = false;
  };
  [[nodiscard]] std::size_t find_slot(std::uint64_t key) const {
    std::size_t at = hash_integer(key) & (slots_.size() - 1);
    while (slots_[at].used && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

/// From the texts of a vector of strings, owned elsewhere, to their indices.
class TextIndex {
 public:
  explicit TextIndex(std::size_t capacity = 0) : slots_(std::bit_ceil(capacity * 2 + 1)) {}

  /// False, and nothing changes, when the text is there already.
  bool insert(const std::vector<std::string>& texts, std::uint32_t index) {
    const std::uint64_t hash = hash_text(texts[index]);
    Slot& slot = slots_[find_slot(texts, texts[index], hash)];
    if (slot.index != kEmpty) return false;
    slot = {static_cast<std::uint32_t>(hash >> 32U), index};
    return true;
  }
  [[nodiscard]] std::optional<std::uint32_t> find(const std::vector<std::string>& texts, std::string_view text) const {
    const Slot& slot = slots_[find_slot(texts, text, hash_text(text))];
    return slot.index == kEmpty ? std::nullopt : std::optional(slot.index);
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFF;
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t index = kEmpty;
  };
  [[nodiscard]] std::size_t find_slot(const std::vector<std::string>& texts, std::string_view text,
                                      std::uint64_t hash) const {
    const auto tag = static_cast<std::uint32_t>(hash >> 32U);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].index != kEmpty && (slots_[at].tag != tag || texts[slots_[at].index] != text)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace vernier::text_internal
