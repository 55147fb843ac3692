// A model: weights in place on a backend, and the forward pass that turns a step's tokens into logits. Also the list of
// architectures, the one place where a new family is entered (model_list.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/expert_executor.h"
#include "checkpoint/tensor_spec.h"
#include "model/model_config.h"

namespace vernier {

class CheckpointFiles;
class WeightSet;
class Json;

/// Shape of one layer's KV cache; num_kv_heads 0: the layer keeps none (linear attention, or shares another layer's).
struct KvShape {
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
};

/// What one layer's FP8 cache stores is a key or value divided by these.
struct KvScales {
  float key = 1.0F;
  float value = 1.0F;
  bool is_stored = false;  ///< the checkpoint holds at least one of them
};

/// Floats of recurrent state that one sequence keeps in one layer; both 0: none.
struct StateShape {
  std::int64_t recurrent_floats = 0;
  std::int64_t convolution_floats = 0;
};

/// What one sequence caches: an entry a layer, then one for the multi-token prediction block where the configuration
/// promises it. `state` is empty in families without recurrent layers.
struct CacheShapes {
  std::vector<KvShape> kv;
  std::vector<StateShape> state;
};

/// The cache memory of one layer during a step.
struct LayerCache {
  KvLayer kv;
  float* recurrent = nullptr;    ///< [slots, recurrent_floats]
  float* convolution = nullptr;  ///< [slots, convolution_floats]
};

/// What one step computes. Host memory; valid during forward().
struct StepBatch {
  std::span<const std::int32_t> tokens;
  std::span<const SequenceSlice> slices;      ///< in row order, covering all tokens
  std::span<const std::int32_t> output_rows;  ///< rows whose logits are wanted, ascending
  std::span<const LayerCache> caches;         ///< [layers], and one more for a draft block (CacheShapes)
  /// States after the final norm, [tokens, hidden], in backend memory: forward() writes them unless data is null,
  /// draft() reads them.
  MatrixView hidden;
};

class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  /// Reserves activations for steps of up to `max_tokens` tokens and `max_outputs` rows of logits. No memory is
  /// allocated afterwards.
  [[nodiscard]] virtual Status reserve(std::int32_t max_tokens, std::int32_t max_outputs) = 0;
  /// Bytes that reserve() took.
  [[nodiscard]] virtual std::uint64_t reserved_bytes() const = 0;
  /// Computes logits [output_rows, vocab_size] (soft-cap applied) into `logits`, in backend memory.
  [[nodiscard]] virtual Status forward(const StepBatch& batch, MatrixView logits) = 0;
  /// True when the model holds a multi-token prediction block.
  [[nodiscard]] virtual bool can_draft() const { return false; }
  /// Runs the multi-token prediction block: row i of `logits` predicts the token after tokens[i] from tokens[i] and
  /// hidden[i], the state of the token before it. The block's own cache is the last of `caches`. All rows are outputs.
  [[nodiscard]] virtual Status draft(const StepBatch& batch, MatrixView logits);
};

struct ModelContext {
  Backend* backend = nullptr;         ///< outlives the model
  ExpertExecutor* experts = nullptr;  ///< outlives the model
};

/// One family. Functions are stateless.
struct Architecture {
  std::string_view name;                             ///< as `inspect` prints it
  std::span<const std::string_view> hf_model_types;  ///< config.json "model_type" values
  std::span<const std::string_view> gguf_names;      ///< general.architecture values
  /// From the whole of config.json.
  Result<ModelConfig> (*config_from_hf)(const Json& config);
  /// From the keys of a GGUF file as one flat object (see gguf_config.h).
  Result<ModelConfig> (*config_from_gguf)(const Json& keys);
  std::vector<TensorSpec> (*tensors)(const ModelConfig& config);
  std::vector<IgnoreRule> (*ignored)(const ModelConfig& config);
  /// Null: the family is known (inspect works) but can't run yet.
  Result<std::unique_ptr<Model>> (*build)(ModelConfig config, const WeightSet& weights, const ModelContext& context);
  /// What a sequence caches: known before any weight is read, because memory plans need it.
  CacheShapes (*caches)(const ModelConfig& config);
};

[[nodiscard]] std::span<const Architecture> model_list();

/// The family and configuration of a checkpoint, from its headers. Unknown families list the known ones.
struct ModelDescription {
  const Architecture* architecture = nullptr;
  ModelConfig config;
};
[[nodiscard]] Result<ModelDescription> describe_model(const CheckpointFiles& files);
/// The same from the content of a config.json alone; names of tensors then have the usual prefix.
[[nodiscard]] Result<ModelDescription> describe_config(const Json& config);

}  // namespace vernier
