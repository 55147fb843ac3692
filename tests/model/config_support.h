// Configurations for tests: a valid one of each kind, and ways to change one key.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/model.h"

namespace vernier::test {

[[nodiscard]] inline Json parse(std::string_view text) {
  auto json = parse_json(text);
  EXPECT_TRUE(json) << (json ? "" : json.error().message);
  return json ? *std::move(json) : Json();
}

[[nodiscard]] inline Json with(Json object, std::string key, Json value) {
  object.as_object().set(std::move(key), std::move(value));
  return object;
}

[[nodiscard]] inline const Architecture& family(std::string_view name) {
  for (const Architecture& architecture : model_list()) {
    if (architecture.name == name) return architecture;
  }
  ADD_FAILURE() << "no family " << name;
  return model_list().front();
}

[[nodiscard]] inline Json llama_json() {
  return parse(R"({"model_type":"llama","vocab_size":1024,"hidden_size":192,"num_hidden_layers":4,
    "num_attention_heads":6,"num_key_value_heads":2,"head_dim":32,"intermediate_size":576,
    "max_position_embeddings":32768,"rms_norm_eps":1e-5,"eos_token_id":[1023,5],"bos_token_id":1019,
    "rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":512}})");
}

[[nodiscard]] inline Json llama_keys() {
  return parse(R"({"general.architecture":"llama","llama.block_count":4,"llama.context_length":32768,
    "llama.embedding_length":192,"llama.feed_forward_length":576,"llama.attention.head_count":6,
    "llama.attention.head_count_kv":2,"llama.rope.freq_base":500000.0,
    "llama.attention.layer_norm_rms_epsilon":1e-5,"llama.attention.key_length":32,
    "llama.attention.value_length":32,"llama.vocab_size":1024,"llama.rope.dimension_count":32,
    "tokenizer.ggml.tokens":1024,"tokenizer.ggml.eos_token_id":1023})");
}

[[nodiscard]] inline Json qwen3moe_json() {
  return parse(R"({"model_type":"qwen3_moe","vocab_size":1024,"hidden_size":192,"num_hidden_layers":4,
    "num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"intermediate_size":576,
    "max_position_embeddings":4096,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"num_local_experts":8,
    "num_experts_per_tok":2,"moe_intermediate_size":192,"norm_topk_prob":true,"eos_token_id":1023,
    "bos_token_id":null})");
}

}  // namespace vernier::test
