#include "bench/synthetic_model.h"

#include "base/checked_math.h"
#include "bench/shape_list.h"
#include "format/format_list.h"
#include "model/model.h"

namespace vernier::bench {
namespace {

constexpr std::uint64_t kAlignment = 32;  // GGUF's

Result<FormatId> parse_format(std::string_view name) {
  if (const auto format = find_format(name)) return *format;
  std::string known;
  for (const FormatInfo& info : kFormats) known += (known.empty() ? "" : ", ") + std::string(info.name);
  return fail_with_hint(ErrorCode::kInvalidArgument, "known: " + known, "--format: unknown format '{}'", escape(name));
}

Result<bool> wants_gguf(const SyntheticOptions& options, const StorageChoice& choice) {
  if (options.container == "gguf") return true;
  if (options.container == "safetensors") return false;
  if (!options.container.empty()) {
    return fail(ErrorCode::kInvalidArgument, "unknown container '{}'; known: gguf, safetensors",
                escape(options.container));
  }
  const auto only_gguf = [](FormatId format) {
    return !format_info(format).has_plain && !format_info(format).has_separate;
  };
  return only_gguf(choice.linear) || only_gguf(choice.experts);
}

/// Embedding, head and routers, as the usual tools store them beside such linears.
void choose_others(const ModelConfig& config, StorageChoice& choice) {
  const FormatInfo& info = format_info(choice.linear);
  const bool is_plain = find_plain_format(info.code_dtype) == choice.linear && info.has_plain;
  const FormatId plain = is_plain ? choice.linear : kFormatIdOf<BF16Format>;
  choice.embedding = choice.head = choice.other = plain;
  if (!choice.is_gguf) return;
  choice.other = kFormatIdOf<F32Format>;
  if (info.has_plain || info.has_separate) return;
  // ggml's own types cover embedding and head too, the head with at least six bits.
  const bool is_small = info.block_bytes * 8 < info.block_values * 13 / 2;
  const bool fits = config.hidden_size % Q6_KFormat::kBlockValues == 0;
  choice.head = !is_small ? choice.linear : fits ? kFormatIdOf<Q6_KFormat> : kFormatIdOf<Q8_0Format>;
  choice.embedding = config.head == HeadRule::kTied ? choice.head : choice.linear;
}

Result<StorageChoice> choose_storage(const SyntheticOptions& options, const Shape& shape, const ModelConfig& config) {
  StorageChoice choice;
  VN_ASSIGN(choice.linear, parse_format(options.format.empty() ? shape.linear : options.format));
  VN_ASSIGN(choice.experts, parse_format(options.format.empty() ? shape.experts : options.format));
  VN_ASSIGN(choice.is_gguf, wants_gguf(options, choice));
  choose_others(config, choice);
  return choice;
}

}  // namespace

Result<SyntheticModel> SyntheticModel::plan(const SyntheticOptions& options) {
  VN_ASSIGN(Shape shape, find_shape(options.shape));
  if (options.layers != 0) {
    VN_ASSIGN(shape.config, with_layers(shape.config, options.layers));
  }
  VN_ASSIGN(ModelDescription description, describe_config(shape.config));
  VN_ASSIGN(const StorageChoice choice, choose_storage(options, shape, description.config));
  if (choice.is_gguf) {
    description.config.from_gguf = true;
    description.config.name_prefix.clear();
  }
  const std::vector<TensorSpec> specs = description.architecture->tensors(description.config);
  SyntheticModel model;
  model.seed_ = options.seed;
  VN_ASSIGN(model.tensors_, plan_tensors(specs, choice));
  VN_TRY(model.open(options, choice.is_gguf ? ContainerKind::kGguf : ContainerKind::kSafetensors,
                    std::move(description), specs));
  return model;
}

Status SyntheticModel::open(const SyntheticOptions& options, ContainerKind container, ModelDescription description,
                            const std::vector<TensorSpec>& specs) {
  CheckedU64 end = 0;
  for (const PlannedTensor& tensor : tensors_) {
    end = end.align_up(kAlignment);
    offsets_.push_back(end.value().value_or(0));
    end += tensor.size;
  }
  if (!end.value()) return fail(ErrorCode::kInternal, "a synthetic model of more than 2^64 bytes");
  is_in_file_ = !options.file.empty();
  VN_ASSIGN(const MappedFile::InMemory memory, is_in_file_ ? MappedFile::in_file(options.file, *end.value())
                                                           : MappedFile::in_memory(*end.value(), "synthetic"));
  bytes_ = memory.bytes;
  is_filled_ = memory.is_old;
  std::vector<TensorRecord> records;
  records.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const PlannedTensor& tensor = tensors_[i];
    records.push_back({.name = tensor.name,
                       .shape = tensor.shape,
                       .type_name = tensor.type_name,
                       .dtype = tensor.dtype,
                       .ggml_type = tensor.ggml_type,
                       .file = memory.file,
                       .extent = {offsets_[i], tensor.size}});
  }
  VN_ASSIGN(CheckpointFiles files, CheckpointFiles::from_records(container, std::move(records), memory.file));
  const auto ignored = description.architecture->ignored(description.config);
  VN_ASSIGN(ResolvedCheckpoint resolved, resolve(files, specs, ignored, {}));
  opened_ = std::make_unique<OpenedModel>(OpenedModel{std::move(files), std::move(description), std::move(resolved)});
  return {};
}

}  // namespace vernier::bench
