#include "model/weight_loader.h"

#include <utility>

namespace vernier {

Result<std::span<const float>> VectorStore::place(Backend& backend, std::span<const float> values) {
  if (values.empty()) return std::span<const float>();
  VN_ASSIGN(Buffer buffer, backend.allocate(values.size_bytes()));
  VN_TRY(backend.copy_to_device(buffer.data(), values.data(), values.size_bytes()));
  const auto* data = static_cast<const float*>(buffer.data());
  buffers_.push_back(std::move(buffer));
  return std::span(data, values.size());
}

Result<Weight> WeightLoader::matrix(std::string_view role) const {
  VN_ASSIGN(const Weight host, weights_.matrix(full(role)));
  return backend_.place(host);
}

Result<std::vector<Weight>> WeightLoader::experts(std::string_view role) const {
  VN_ASSIGN(std::vector<Weight> bank, weights_.experts(full(role)));
  for (Weight& expert : bank) {
    VN_ASSIGN(expert, executor_.home().place(expert));
  }
  return bank;
}

Result<std::vector<std::span<const float>>> WeightLoader::expert_biases(std::string_view role,
                                                                        std::size_t num_experts) const {
  std::vector<std::span<const float>> biases;
  if (!has(role)) return biases;
  VN_ASSIGN(const std::vector<float> values, host_vector(role));
  VN_ASSIGN(const std::span<const float> all, store_.place(executor_.home(), values));
  const std::size_t size = all.size() / num_experts;
  for (std::size_t e = 0; e < num_experts; ++e) biases.push_back(all.subspan(e * size, size));
  return biases;
}

Result<std::span<const float>> WeightLoader::vector(std::string_view role) const {
  VN_ASSIGN(const std::vector<float> values, host_vector(role));
  return place(values);
}

Result<std::span<const float>> WeightLoader::optional_vector(std::string_view role) const {
  if (!has(role)) return std::span<const float>();
  return vector(role);
}

Result<std::vector<float>> WeightLoader::host_vector(std::string_view role) const {
  return weights_.vector(full(role));
}

Result<std::span<const float>> WeightLoader::place(std::span<const float> values) const {
  return store_.place(backend_, values);
}

}  // namespace vernier
