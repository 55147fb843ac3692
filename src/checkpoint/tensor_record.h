// What a container says about one tensor: name, shape, how it is stored, and where its bytes are. No meaning is given
// to names here, and no bytes are read: that is the business of the dialects and the models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace vernier {

/// One tensor of a container. The reader has checked that the extent lies within the file and has exactly the size that
/// shape and type imply.
struct TensorRecord {
  std::string name;
  /// Outermost dimension first (torch's order), also for GGUF: a matrix is [rows, cols]. Empty for a scalar.
  std::vector<std::uint64_t> shape;
  /// As messages and listings show it: "F8_E4M3" (safetensors), "q4_k" (GGUF, lower case). Static storage.
  std::string_view type_name;
  /// Set for plain arrays of an element type that Vernier knows: every safetensors dtype in DType, and GGUF's F32, F16,
  /// BF16, F64 and integers.
  std::optional<DType> dtype;
  /// Set for every tensor of a GGUF file: ggml's type id.
  std::optional<std::uint32_t> ggml_type;

  std::shared_ptr<const MappedFile> file;
  Extent extent;                 ///< within `file`; no alignment is promised
  std::uint32_t file_index = 0;  ///< position of `file` in CheckpointFiles::files()

  /// Number of elements. Never overflows for a record that a reader made.
  [[nodiscard]] std::uint64_t num_elements() const {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : shape) count *= dim;
    return count;
  }
  /// The tensor's bytes, valid as long as `file`.
  [[nodiscard]] Result<std::span<const std::byte>> bytes() const { return file->bytes(extent); }
};

/// "[4096, 1024]": a shape in messages.
[[nodiscard]] std::string shape_text(std::span<const std::uint64_t> shape);

/// Finds tensors by name. Sorted instead of hashed, so that no choice of names makes building it slower than n log n.
class TensorIndex {
 public:
  TensorIndex() = default;
  /// Indexes `tensors`; kCorrupt when a name occurs twice ("duplicate tensor 'x' (#a, #b)").
  static Result<TensorIndex> build(std::span<const TensorRecord> tensors);
  /// The position of the tensor called `name` in the span that the index was built over, which must be unchanged.
  [[nodiscard]] std::optional<std::size_t> find(std::span<const TensorRecord> tensors, std::string_view name) const;
  /// Positions in ascending order of names (bytewise).
  [[nodiscard]] std::span<const std::uint32_t> by_name() const { return order_; }

 private:
  std::vector<std::uint32_t> order_;
};

}  // namespace vernier
