// Which tensors a synthetic checkpoint holds: a model's own table of what it needs, written down as a producer would
// have stored it in a given format. Names, shapes and sizes; the bytes are synthetic_fill's business.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/tensor_spec.h"
#include "model/model_config.h"
#include "tensor/format_id.h"
#include "tensor/weight.h"

namespace vernier::bench {

/// What a tensor's bytes mean.
enum class Content : std::uint8_t {
  kCodes,     ///< of a matrix, with interleaved scales where the layout has them
  kScales,    ///< block scales of a matrix
  kOuter,     ///< second-level factors of a matrix, fp32
  kConstant,  ///< fp32, all `value`
  kNoise,     ///< fp32, evenly spread over -value .. value
};

struct PlannedTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::string_view type_name;
  std::optional<DType> dtype;
  std::optional<std::uint32_t> ggml_type;
  std::uint64_t size = 0;  ///< bytes
  Content content = Content::kCodes;
  FormatId format{};  ///< of the matrix that it is a part of
  WeightLayout layout = WeightLayout::kPlain;
  std::int64_t cols = 0;  ///< of that matrix: its values are spread as 1 / sqrt(cols)
  float value = 0.0F;
  bool holds_bf16 = false;  ///< codes of F32 that are BF16's numbers: what converters make of routers
};

/// The storage formats of a checkpoint's matrices.
struct StorageChoice {
  FormatId linear{};     ///< projections
  FormatId experts{};    ///< of experts
  FormatId embedding{};  ///< the table of token embeddings
  FormatId head{};       ///< the output head
  FormatId other{};      ///< routers, gates
  bool is_gguf = false;
};

/// kInvalidArgument when a format can't be stored in that container.
[[nodiscard]] Result<std::vector<PlannedTensor>> plan_tensors(const std::vector<TensorSpec>& specs,
                                                              const StorageChoice& choice);

}  // namespace vernier::bench
