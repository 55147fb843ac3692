#include "checkpoint/weight_set.h"

#include "base/json.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/quant_config.h"
#include "checkpoint/resolver.h"

namespace vernier {
namespace {

/// A side file as JSON; null when it isn't there.
Result<Json> read_json(const CheckpointFiles& files, SideFile which) {
  VN_ASSIGN(const std::shared_ptr<const MappedFile> file, files.side_file(which));
  if (!file) return Json{};
  Result<Json> json = parse_json(text_of(file));
  if (!json) return tl::unexpected(with_context(std::move(json).error(), side_file_name(which)));
  return json;
}

Result<QuantConfig> read_quant_config(const CheckpointFiles& files) {
  if (files.gguf() != nullptr) return QuantConfig{};
  VN_ASSIGN(const Json config, read_json(files, SideFile::kConfig));
  VN_ASSIGN(const Json hf_quant, read_json(files, SideFile::kHfQuantConfig));
  return QuantConfig::parse(&config, &hf_quant);
}

}  // namespace

ResolvedCheckpoint::ResolvedCheckpoint(std::unique_ptr<Impl> decided) : impl_(std::move(decided)) {}
ResolvedCheckpoint::~ResolvedCheckpoint() = default;
ResolvedCheckpoint::ResolvedCheckpoint(ResolvedCheckpoint&&) noexcept = default;
ResolvedCheckpoint& ResolvedCheckpoint::operator=(ResolvedCheckpoint&&) noexcept = default;

const Accounting& ResolvedCheckpoint::accounting() const { return impl_->accounting; }

bool ResolvedCheckpoint::has(std::string_view role) const { return impl_->roles.contains(std::string(role)); }

Result<ResolvedCheckpoint> resolve(const CheckpointFiles& files, std::span<const TensorSpec> specs,
                                   std::span<const IgnoreRule> ignore, const ResolveOptions& options) {
  VN_ASSIGN(const QuantConfig config, read_quant_config(files));
  const ResolveInput input{.records = files.tensors(),
                           .by_name = files.by_name(),
                           .gguf = files.container() == ContainerKind::kGguf,
                           .specs = specs,
                           .ignore = ignore,
                           .config = &config,
                           .options = options};
  VN_ASSIGN(std::unique_ptr<ResolvedCheckpoint::Impl> decided, resolve_records(input));
  decided->files = files.files();
  return ResolvedCheckpoint(std::move(decided));
}

bool WeightSet::has(std::string_view role) const {
  const std::string key(role);
  return matrices.contains(key) || vectors.contains(key);
}

Result<Weight> WeightSet::matrix(std::string_view role) const {
  const auto found = matrices.find(std::string(role));
  if (found == matrices.end() || found->second.size() != 1) {
    return fail(ErrorCode::kInternal, "no matrix was loaded for '{}'", role);
  }
  return found->second.front();
}

Result<std::vector<Weight>> WeightSet::experts(std::string_view role) const {
  const auto found = matrices.find(std::string(role));
  if (found == matrices.end()) return fail(ErrorCode::kInternal, "no experts were loaded for '{}'", role);
  return found->second;
}

Result<std::vector<float>> WeightSet::vector(std::string_view role) const {
  const auto found = vectors.find(std::string(role));
  if (found == vectors.end()) return fail(ErrorCode::kInternal, "no vector was loaded for '{}'", role);
  return found->second;
}

}  // namespace vernier
