// Linears, and what weights of all operations are made with.
#include "bench/kernel_cases.h"

#include <algorithm>
#include <cstring>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "bench/list.h"
#include "bench/random.h"
#include "bench/random_blocks.h"
#include "format/decode.h"
#include "format/format_list.h"

namespace vernier::bench {
namespace {

constexpr std::int64_t kNoise = 1 << 18;  // floats that operands repeat
constexpr std::int64_t kMaxCopies = 4096;
constexpr std::int32_t kTile = 128;  // rows and columns under one scale of a grid
constexpr std::uint64_t kAlignment = 64;

std::uint64_t align(std::uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

/// A weight without bytes: the strides and counts that follow from format and shape.
Result<Weight> describe(const StoredFormat& format, std::int64_t rows, std::int64_t cols) {
  const FormatInfo& info = format_info(format.format);
  const auto row_bytes = info.row_bytes(format.layout, cols);
  if (!row_bytes) {
    return fail(ErrorCode::kInvalidArgument, "rows of {} values can't be stored as {} (blocks of {})", cols,
                format.name, info.cols_multiple(format.layout));
  }
  Weight weight;
  weight.format = format.format;
  weight.layout = format.layout;
  weight.rows = rows;
  weight.cols = cols;
  weight.row_stride = *row_bytes;
  if (format.layout == WeightLayout::kSeparate) {
    weight.scale_dtype = info.scale_dtype;
    weight.scale_block_rows = info.has_grid ? kTile : 1;
    weight.scale_block_cols = info.has_grid ? kTile : info.scale_values;
    const std::int64_t columns = (cols + weight.scale_block_cols - 1) / weight.scale_block_cols;
    weight.scale_stride = columns * static_cast<std::int64_t>(dtype_bits(info.scale_dtype) / 8);
  }
  return weight;
}

StoredFormat preferred(FormatId format) {
  const FormatInfo& info = format_info(format);
  const WeightLayout layout = info.has_separate      ? WeightLayout::kSeparate
                              : info.has_interleaved ? WeightLayout::kInterleaved
                                                     : WeightLayout::kPlain;
  return {format, layout, std::string(info.name)};
}

Result<StoredFormat> parse_format(std::string_view text) {
  constexpr std::string_view kGguf = ":gguf";
  const bool is_gguf = text.ends_with(kGguf);
  const std::string_view name = is_gguf ? text.substr(0, text.size() - kGguf.size()) : text;
  const auto format = find_format(name);
  if (!format || (is_gguf && !format_info(*format).has_interleaved)) {
    std::string known;
    for (const FormatInfo& info : kFormats) known += (known.empty() ? "" : ", ") + std::string(info.name);
    return fail_with_hint(ErrorCode::kInvalidArgument, "known: all, " + known + "; with :gguf for GGUF's blocks",
                          "--formats: unknown format '{}'", escape(text));
  }
  StoredFormat stored = preferred(*format);
  if (is_gguf && stored.layout != WeightLayout::kInterleaved) {
    stored.layout = WeightLayout::kInterleaved;
    stored.name = text;
  }
  return stored;
}

/// What people have on disk: block-scaled formats in both layouts, bf16, and the usual four of ggml.
std::vector<StoredFormat> usual_formats() {
  std::vector<StoredFormat> formats;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    const StoredFormat stored = preferred(static_cast<FormatId>(i));
    if (!kFormats[i].has_separate) continue;
    formats.push_back(stored);
    if (kFormats[i].has_interleaved) {
      formats.push_back({stored.format, WeightLayout::kInterleaved, stored.name + ":gguf"});
    }
  }
  for (const std::string_view name : {"bf16", "q8_0", "q4_0", "q4_k", "q6_k"}) {
    formats.push_back(preferred(*find_format(name)));
  }
  return formats;
}

}  // namespace

Result<std::vector<StoredFormat>> parse_formats(const std::string& text) {
  if (text.empty()) return usual_formats();
  std::vector<StoredFormat> formats;
  if (text == "all") {
    for (std::size_t i = 0; i < kFormats.size(); ++i) formats.push_back(preferred(static_cast<FormatId>(i)));
    return formats;
  }
  for (const std::string_view part : split_list(text)) {
    VN_ASSIGN(StoredFormat format, parse_format(part));
    formats.push_back(std::move(format));
  }
  return formats;
}

Result<std::shared_ptr<Buffer>> repeated_bytes(Backend& backend, const std::vector<std::byte>& bytes,
                                               std::uint64_t size) {
  VN_TRY(check_room(backend, kOperands, static_cast<double>(size)));
  VN_ASSIGN(Buffer buffer, backend.allocate(size));
  for (std::uint64_t at = 0; at < size; at += bytes.size()) {
    VN_TRY(backend.copy_to_device(static_cast<std::byte*>(buffer.data()) + at, bytes.data(),
                                  std::min<std::uint64_t>(bytes.size(), size - at)));
  }
  return std::make_shared<Buffer>(std::move(buffer));
}

Result<std::shared_ptr<Buffer>> random_floats(Backend& backend, std::int64_t count, float factor) {
  Random random(7);
  std::vector<float> values(static_cast<std::size_t>(std::min(count, kNoise)));
  for (float& value : values) value = random.normal() * factor;
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return repeated_bytes(backend, bytes, static_cast<std::uint64_t>(count) * sizeof(float));
}

Result<std::vector<Weight>> make_weights(const CaseContext& context, const StoredFormat& format,
                                         const LinearShape& shape, std::int64_t count) {
  VN_ASSIGN(const Weight model, describe(format, shape.rows, shape.cols));
  const auto code_bytes = static_cast<std::uint64_t>(model.rows * model.row_stride);
  const std::int64_t grid_rows = (model.rows + model.scale_block_rows - 1) / model.scale_block_rows;
  const auto scale_bytes = static_cast<std::uint64_t>(grid_rows * model.scale_stride);
  const std::uint64_t step = align(code_bytes) + align(scale_bytes);
  VN_TRY(check_host_room(kOperands, static_cast<double>(step) * static_cast<double>(count)));
  VN_ASSIGN(const MappedFile::InMemory memory,
            MappedFile::in_memory(step * static_cast<std::uint64_t>(count), "operands"));
  const BlockTile tile = make_tile(format.format, format.layout, shape.cols, 1);
  ThreadPool pool(context.threads);
  pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* codes = memory.bytes.data() + static_cast<std::uint64_t>(i) * step;
      const auto seed = static_cast<std::uint64_t>(i);
      fill_from_tile(tile.codes, tile.code_unit, seed, codes, code_bytes);
      if (scale_bytes > 0) {
        fill_from_tile(tile.scales, tile.scale_unit, seed, codes + align(code_bytes), scale_bytes);
      }
    }
  });
  std::vector<Weight> weights;
  for (std::int64_t i = 0; i < count; ++i) {
    Weight weight = model;
    weight.codes = memory.bytes.data() + static_cast<std::uint64_t>(i) * step;
    if (scale_bytes > 0) weight.scales = weight.codes + align(code_bytes);
    if (format_info(format.format).outer_scale != OuterScaleUse::kNone) weight.outer.values = {tile.outer};
    weight.owner = memory.file;
    VN_ASSIGN(weight, context.backend->place(weight));
    weights.push_back(std::move(weight));
  }
  return weights;
}

std::int64_t copies_for(const CaseContext& context, double bytes) {
  const auto copies = static_cast<std::int64_t>(static_cast<double>(context.working_set) / bytes) + 1;
  return std::clamp<std::int64_t>(copies, 1, kMaxCopies);
}

Result<double> weight_bytes(const StoredFormat& format, const LinearShape& shape) {
  VN_ASSIGN(const Weight model, describe(format, shape.rows, shape.cols));
  return static_cast<double>(storage_bytes(model));
}

Result<std::shared_ptr<const LinearOperands>> linear_operands(const CaseContext& context, const StoredFormat& format,
                                                              const LinearShape& shape,
                                                              const std::vector<std::int32_t>& tokens) {
  auto operands = std::make_shared<LinearOperands>();
  VN_ASSIGN(operands->weight_bytes, weight_bytes(format, shape));
  const std::int64_t copies = copies_for(context, operands->weight_bytes);
  VN_TRY(check_room(*context.backend, kOperands, operands->weight_bytes * static_cast<double>(copies)));
  VN_ASSIGN(operands->weights, make_weights(context, format, shape, copies));
  const std::int64_t most = *std::max_element(tokens.begin(), tokens.end());
  VN_ASSIGN(operands->x, random_floats(*context.backend, most * shape.cols));
  VN_ASSIGN(operands->y, random_floats(*context.backend, most * shape.rows));
  return std::shared_ptr<const LinearOperands>(std::move(operands));
}

KernelCase describe_linear(const StoredFormat& format, const LinearShape& shape, std::int32_t tokens,
                           double weight_bytes) {
  KernelCase one;
  one.op = "linear";
  one.format = format.name;
  one.shape = fmt::format("{}x{}", shape.rows, shape.cols);
  one.tokens = tokens;
  one.bytes = weight_bytes + 4.0 * tokens * static_cast<double>(shape.rows + shape.cols);
  one.flops = 2.0 * tokens * static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  return one;
}

Result<KernelGroup> linear_cases(const CaseContext& context, const StoredFormat& format, const LinearShape& shape,
                                 const std::vector<std::int32_t>& tokens) {
  VN_ASSIGN(const auto operands, linear_operands(context, format, shape, tokens));
  KernelGroup group;
  for (const std::int32_t m : tokens) {
    KernelCase one = describe_linear(format, shape, m, operands->weight_bytes);
    one.copies = static_cast<std::int64_t>(operands->weights.size());
    one.run = [backend = context.backend, operands, m, shape](std::int64_t call) {
      LinearOutput output;
      output.weight = &operands->weights[static_cast<std::size_t>(call) % operands->weights.size()];
      output.y = matrix_of(*operands->y, m, shape.rows);
      return backend->linear({matrix_of(*operands->x, m, shape.cols), {&output, 1}});
    };
    group.push_back(std::move(one));
  }
  return group;
}

}  // namespace vernier::bench
