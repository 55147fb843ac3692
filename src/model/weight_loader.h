// Puts the weights of a model where its backend wants them, while the model is built.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/expert_executor.h"
#include "base/result.h"
#include "checkpoint/weight_set.h"

namespace vernier {

/// Backend memory that a model's vectors lie in; lives as long as the model.
class VectorStore {
 public:
  /// Copies `values` into backend memory. Empty stays empty.
  [[nodiscard]] Result<std::span<const float>> place(Backend& backend, std::span<const float> values);

 private:
  std::vector<Buffer> buffers_;
};

/// Reads roles of a WeightSet, relative to the current layer.
class WeightLoader {
 public:
  /// All four outlive the loader; `store` also outlives what the loader returns.
  WeightLoader(Backend& backend, ExpertExecutor& executor, const WeightSet& weights, VectorStore& store)
      : backend_(backend), executor_(executor), weights_(weights), store_(store) {}

  /// "layers.3.", "mtp.", or "" for what stands outside layers.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  [[nodiscard]] bool has(std::string_view role) const { return weights_.has(full(role)); }
  [[nodiscard]] Result<Weight> matrix(std::string_view role) const;
  /// A bank's weights, and biases [experts, n] as one span an expert (empty: none), where the executor wants them.
  [[nodiscard]] Result<std::vector<Weight>> experts(std::string_view role) const;
  [[nodiscard]] Result<std::vector<std::span<const float>>> expert_biases(std::string_view role,
                                                                          std::size_t num_experts) const;
  [[nodiscard]] Result<std::span<const float>> vector(std::string_view role) const;
  /// Empty when the files hold no such vector.
  [[nodiscard]] Result<std::span<const float>> optional_vector(std::string_view role) const;
  /// The values in host memory, to be worked on before place().
  [[nodiscard]] Result<std::vector<float>> host_vector(std::string_view role) const;
  [[nodiscard]] Result<std::span<const float>> place(std::span<const float> values) const;
  [[nodiscard]] ExpertExecutor& executor() const { return executor_; }

 private:
  [[nodiscard]] std::string full(std::string_view role) const { return prefix_ + std::string(role); }

  Backend& backend_;
  ExpertExecutor& executor_;
  const WeightSet& weights_;
  VectorStore& store_;
  std::string prefix_;
};

}  // namespace vernier
