// Opening a model and generating with it: submit requests, read their token events, cancel.
//
// Threads: an Engine may be used from several threads; each RequestHandle from one at a time. Without start(), the
// thread that waits in RequestHandle::next() runs the steps; after start(), a background thread does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vernier/error.h"
#include "vernier/sampling.h"

namespace vernier {

/// What to open and how to run it.
struct EngineOptions {
  std::filesystem::path model;        ///< a .gguf or .safetensors file or a folder; empty: the embedded demo model
  std::string device = "auto";        ///< auto, cpu, cuda, cuda:INDEX, reference
  std::string precision = "bf16";     ///< bf16 or f32: what linears do with their inputs
  std::string kv = "";                ///< bf16, f32 or fp8; empty: bf16, or f32 with precision f32
  std::string cpu_isa = "";           ///< instruction set of the cpu device; empty: the best that the machine has
  std::string experts = "auto";       ///< auto or cpu; with a GPU also fused, offload and hybrid
  std::string expert_cache;           ///< offload, hybrid: "2GiB", "25%" or a number of experts; empty: all free memory
  std::string expert_store = "auto";  ///< offload, hybrid: a copy of all experts in memory, or as they are in the file
  bool cuda_graphs = true;            ///< on a GPU, launch repeated decode steps as CUDA graphs
  std::string routing_trace;          ///< a file to record the chosen experts in; empty: none
  std::int32_t threads = 0;           ///< 0: all the process may use
  std::int32_t context = 0;           ///< tokens a sequence may have; 0: the model's, at most 8192
  std::int32_t max_sequences = 1;     ///< sequences that run together
  std::int32_t batch_tokens = 0;      ///< tokens of one step at most, longer prompts go in chunks; 0: suits the device
  std::int32_t score_rows = 16;  ///< tokens of one step of score(): each takes a row of logits, here and on the device
  bool lenient = false;          ///< unknown tensors become warnings
  bool check_weights = true;     ///< scan all blocks for invalid codes and scales while loading
  std::vector<std::filesystem::path> allowed_roots;  ///< folders that shard links may point into
};

/// What was opened.
struct ModelInfo {
  std::string name;          ///< file or folder name
  std::string architecture;  ///< "llama", ...
  std::string device;
  std::string precision;
  std::string experts;
  std::string expert_store;  ///< offload, hybrid: "memory" or "file"; else empty
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;  ///< the model's
  std::int32_t context = 0;         ///< tokens a sequence may have here
  std::uint64_t parameters = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t activation_bytes = 0;  ///< activations and logits, those on the host included
  std::string kv;                      ///< element type of the KV cache: "bf16", "f32" or "fp8"
  std::int32_t kv_scaled_layers = 0;   ///< layers whose FP8 cache uses scales that the files hold
  std::int32_t experts_per_token = 0;  ///< 0: no mixture
  double load_seconds = 0.0;
  std::vector<std::string> warnings;
};

/// Sampling defaults that the checkpoint's generation_config states; absent ones are empty.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> repeat_penalty;
  std::optional<bool> do_sample;
};

struct Request {
  std::vector<std::int32_t> prompt;  ///< token ids, at least one
  SamplingParams sampling;
};

enum class FinishReason : std::uint8_t { kLength, kStop, kEos, kCancelled, kError };
/// "length", "stop", "eos", "cancelled", "error".
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0.0F;
  std::vector<std::pair<std::int32_t, float>> top;  ///< likeliest first
};

/// One generated token, or the end of a request. The last event has `finish`; it may carry a token too.
struct TokenEvent {
  std::optional<std::int32_t> id;  ///< absent in an event that only ends the request
  std::string text;                ///< complete UTF-8 that became certain with this event; may be empty
  std::optional<TokenLogprob> logprob;
  std::optional<FinishReason> finish;
  std::optional<Error> error;  ///< with FinishReason::kError
};

/// A half-open range of bytes of a text.
struct LiteralRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Engine;

/// A submitted request. Destroying it cancels the request. Must not outlive its Engine.
class RequestHandle {
 public:
  RequestHandle(RequestHandle&&) noexcept;
  RequestHandle& operator=(RequestHandle&&) noexcept;
  ~RequestHandle();

  /// The next event, waiting for it; nothing after the event with `finish`.
  [[nodiscard]] std::optional<TokenEvent> next();
  /// Ends the request at the next step border. next() then yields a kCancelled event.
  void cancel();

 private:
  friend class Engine;
  struct Impl;
  explicit RequestHandle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A loaded model with its caches and scheduler.
class Engine {
 public:
  [[nodiscard]] static Outcome<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const ModelInfo& info() const;
  [[nodiscard]] const GenerationDefaults& defaults() const;
  /// Jinja source of the checkpoint's chat template, or empty.
  [[nodiscard]] const std::string& chat_template() const;
  /// Texts of the special tokens that templates name; empty when absent.
  [[nodiscard]] std::string bos_text() const;
  [[nodiscard]] std::string eos_text() const;

  /// Text to ids. `add_special` puts BOS and the like where the tokenizer does; `parse_special` recognises special
  /// tokens in the text (false: they stay text), except within `literal`: byte ranges, ascending and disjoint, of what
  /// users wrote. kUnsupported when the checkpoint has no tokenizer.
  [[nodiscard]] Outcome<std::vector<std::int32_t>> tokenize(std::string_view text, bool add_special, bool parse_special,
                                                            std::span<const LiteralRange> literal = {}) const;
  /// The spellings of all special (control) tokens.
  [[nodiscard]] std::vector<std::string> special_texts() const;
  /// Ids to text.
  [[nodiscard]] std::string detokenize(std::span<const std::int32_t> ids, bool skip_special) const;

  /// Queues a request. kInvalidArgument for a bad prompt or parameters, naming the field.
  [[nodiscard]] Outcome<RequestHandle> submit(Request request);
  /// Runs steps in a thread of the engine from now on.
  void start();

  /// Teacher forcing: calls `visit(row, logits)` for each position of `ids` from `first_row` on, in order, logits of
  /// vocab_size floats that predict position row + 1. At most info().context ids. Steps that end in front of
  /// `first_row` compute no logits; memory is bounded by EngineOptions::score_rows. Runs apart from queued requests.
  [[nodiscard]] std::optional<Error> score(std::span<const std::int32_t> ids,
                                           const std::function<void(std::size_t, std::span<const float>)>& visit,
                                           std::size_t first_row = 0);

  /// True when the model holds a multi-token prediction block.
  [[nodiscard]] bool can_draft() const;
  /// As score(), of the multi-token prediction block: `logits` of a row predict position row + 2 from the model's state
  /// at `row` and the token at row + 1. Rows end one before the last token.
  [[nodiscard]] std::optional<Error> score_drafts(
      std::span<const std::int32_t> ids, const std::function<void(std::size_t, std::span<const float>)>& visit);

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vernier
