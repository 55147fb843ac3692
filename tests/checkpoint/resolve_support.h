// Checkpoints in memory for tests of the resolver: tensors are added to a builder, a config is given as text, and the
// wanted tensors as specs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/gguf.h"
#include "checkpoint/quant_config.h"
#include "checkpoint/resolver.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weight_set.h"
#include "format/decode.h"
#include "format/format_list.h"
#include "support/expect_error.h"
#include "support/gguf_builder.h"
#include "support/safetensors_builder.h"

namespace vernier::test {

inline TensorSpec matrix_spec(std::string role, std::vector<std::uint64_t> shape, std::vector<Spelling> spellings,
                              TensorKind kind = TensorKind::kTrunkLinear) {
  TensorSpec spec;
  spec.role = std::move(role);
  spec.kind = kind;
  spec.shape = std::move(shape);
  spec.spellings = std::move(spellings);
  return spec;
}

inline TensorSpec vector_spec(std::string role, std::vector<std::uint64_t> shape, Spelling spelling) {
  return matrix_spec(std::move(role), std::move(shape), {std::move(spelling)}, TensorKind::kVector);
}

/// What a test says about a checkpoint; resolve() reads it as the real thing is read.
struct TestCheckpoint {
  SafetensorsBuilder file;
  GgufBuilder gguf_file;
  bool gguf = false;
  std::string config;           ///< config.json; empty: none
  std::string hf_quant_config;  ///< hf_quant_config.json; empty: none
  std::vector<TensorSpec> specs;
  std::vector<IgnoreRule> ignore;
  bool lenient = false;
  bool use_cache_scales = false;

  /// Adds a tensor of zero bytes.
  SafetensorsBuilder::Tensor& zeros(std::string_view name, std::string_view dtype, std::vector<std::uint64_t> shape) {
    std::uint64_t size = dtype == "F32" || dtype == "I32" || dtype == "U32" ? 4 : 1;
    if (dtype == "BF16" || dtype == "F16") size = 2;
    if (dtype == "I64") size = 8;
    for (const std::uint64_t dim : shape) size *= dim;
    return file.tensor(name, dtype, std::move(shape), std::string(size, '\0'));
  }
  /// Wants a [rows, cols] trunk projection stored under `name`, whose role is `name` too.
  void want(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    specs.push_back(matrix_spec(name, {rows, cols}, {{name}}));
  }

  [[nodiscard]] Result<ResolvedCheckpoint> resolve() const {
    std::shared_ptr<const MappedFile> mapped = gguf ? gguf_file.file("model.gguf") : file.file("model.safetensors");
    std::vector<TensorRecord> records;
    if (gguf) {
      VN_ASSIGN(GgufFile read, GgufFile::open(mapped));
      records = read.take_tensors();
    } else {
      VN_ASSIGN(SafetensorsFile read, SafetensorsFile::open(mapped));
      records = read.take_tensors();
    }
    Json config_json;
    Json hf_json;
    if (!config.empty()) {
      VN_ASSIGN(config_json, parse_json(config));
    }
    if (!hf_quant_config.empty()) {
      VN_ASSIGN(hf_json, parse_json(hf_quant_config));
    }
    VN_ASSIGN(const QuantConfig quant_config, QuantConfig::parse(&config_json, &hf_json));
    VN_ASSIGN(const TensorIndex index, TensorIndex::build(records));
    VN_ASSIGN(auto decided, resolve_records({.records = records,
                                             .by_name = index.by_name(),
                                             .gguf = gguf,
                                             .specs = specs,
                                             .ignore = ignore,
                                             .config = &quant_config,
                                             .options = {.lenient = lenient, .use_cache_scales = use_cache_scales}}));
    decided->files = {mapped};
    return ResolvedCheckpoint(std::move(decided));
  }

  [[nodiscard]] Result<WeightSet> load() const {
    VN_ASSIGN(const ResolvedCheckpoint resolved, resolve());
    return vernier::load(resolved, {.threads = 2});
  }
};

/// Success when the checkpoint is refused with one problem that holds all of `words`.
[[nodiscard]] inline testing::AssertionResult is_refused(const TestCheckpoint& checkpoint,
                                                         const std::vector<std::string>& words) {
  const Result<ResolvedCheckpoint> resolved = checkpoint.resolve();
  if (!resolved) return testing::AssertionFailure() << "not read at all: " << resolved.error().message;
  const Accounting& account = resolved->accounting();
  std::uint64_t ignored = 0;
  for (const auto& [reason, count] : account.ignored) ignored += count;
  if (account.total != account.used + ignored + account.refused) {
    return testing::AssertionFailure() << account.total << " tensors, but " << account.used << " used, " << ignored
                                       << " ignored, " << account.refused << " refused";
  }
  if (account.problems.empty()) return testing::AssertionFailure() << "accepted";
  return fails_with(Result<int>(tl::unexpected(account.problems.front())), words);
}

/// Success when every tensor of the checkpoint is used or ignored.
[[nodiscard]] inline testing::AssertionResult is_accepted(const TestCheckpoint& checkpoint) {
  const Result<ResolvedCheckpoint> resolved = checkpoint.resolve();
  if (!resolved) return testing::AssertionFailure() << resolved.error().message;
  const Accounting& account = resolved->accounting();
  if (!account.problems.empty()) return testing::AssertionFailure() << account.problems.front().message;
  return account.refused == 0 ? testing::AssertionSuccess() : testing::AssertionFailure() << account.refused;
}

/// All values of a weight, second-level scale included.
inline std::vector<float> values(const Weight& weight) {
  std::vector<float> result;
  std::vector<float> row(static_cast<std::size_t>(weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    decode_row(weight, r, 0, weight.cols, row.data());
    for (const float value : row) result.push_back(weight.outer.apply(value, r));
  }
  return result;
}

/// BF16 bytes of numbers that BF16 holds exactly.
inline std::string bf16(const std::vector<float>& numbers) {
  std::string bytes;
  for (const float number : numbers)
    append_number(bytes, static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, number) >> 16U));
  return bytes;
}

inline std::string f32(const std::vector<float>& numbers) { return bytes_of(std::span(numbers)); }

/// Sixteen 4-bit codes 0 .. 15 in the nibble order of safetensors files, `times` over.
inline std::string all_codes(std::size_t times) {
  std::string bytes;
  for (std::size_t i = 0; i < times; ++i) bytes += "\x10\x32\x54\x76\x98\xBA\xDC\xFE";
  return bytes;
}

}  // namespace vernier::test
