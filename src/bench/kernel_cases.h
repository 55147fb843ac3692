// The cases of `bench kernels`: an operation with operands in place, to be called again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "bench/room.h"

namespace vernier::bench {

/// What calls share that are made as one step (Backend::run_step).
struct StepInputs {
  std::vector<std::int32_t> tokens = {0};                             ///< one a row
  std::vector<SequenceSlice> slices;                                  ///< empty: one, of one token
  std::int32_t vocabulary = 1;                                        ///< each step draws its tokens from so many
  std::function<Status(std::span<const std::int32_t> tokens)> begin;  ///< in front of the calls, if there is one
  bool overlap = true;                                                ///< as RepeatableStep has it
};

/// One measurable operation. Calls with successive numbers use different operands, as many as fill the working set.
struct KernelCase {
  std::string op;
  std::string format;
  std::string shape;
  std::int64_t tokens = 0;
  double bytes = 0.0;
  double flops = 0.0;
  std::int64_t copies = 1;  ///< calls until operands repeat
  std::int64_t steps = 1;   ///< operations that run() makes; figures are one's
  StepInputs step;
  std::function<Status(std::int64_t call)> run;
};

/// Cases that share operands; they are measured in turn.
using KernelGroup = std::vector<KernelCase>;

struct CaseContext {
  Backend* backend = nullptr;
  std::uint64_t working_set = 0;     ///< bytes
  std::int32_t threads = 0;          ///< for making operands
  std::vector<std::string> cases;    ///< shapes of operations other than linears; empty: all
  std::vector<std::int32_t> tokens;  ///< of routers and experts; empty: those of the targets

  [[nodiscard]] bool wants(std::string_view shape) const {
    return cases.empty() || std::find(cases.begin(), cases.end(), shape) != cases.end();
  }
};

/// The case made into steps of `calls` calls, which devices that record steps launch as a whole. A step's calls have
/// the numbers 0, 1, ..., since that is what is recorded; those of steps of one call go on.
[[nodiscard]] KernelCase in_steps(Backend& backend, KernelCase one, std::int64_t calls);

/// A weight format and how its parts lie.
struct StoredFormat {
  FormatId format{};
  WeightLayout layout{};
  std::string name;  ///< "q8_0", or "NAME:gguf" where the separate layout is the usual one
};
/// "bf16,q8_0", "all", or "" for those most used.
[[nodiscard]] Result<std::vector<StoredFormat>> parse_formats(const std::string& text);

struct LinearShape {
  std::int64_t rows = 0;  ///< out
  std::int64_t cols = 0;  ///< in
};
[[nodiscard]] Result<KernelGroup> linear_cases(const CaseContext& context, const StoredFormat& format,
                                               const LinearShape& shape, const std::vector<std::int32_t>& tokens);

/// Linears of one shape and what they read and write.
struct LinearOperands {
  std::vector<Weight> weights;  ///< as many as fill the working set
  double weight_bytes = 0.0;
  std::shared_ptr<Buffer> x, y;  ///< [most tokens, in], [most tokens, out]
};
[[nodiscard]] Result<std::shared_ptr<const LinearOperands>> linear_operands(const CaseContext& context,
                                                                            const StoredFormat& format,
                                                                            const LinearShape& shape,
                                                                            const std::vector<std::int32_t>& tokens);
/// A case without its run().
[[nodiscard]] KernelCase describe_linear(const StoredFormat& format, const LinearShape& shape, std::int32_t tokens,
                                         double weight_bytes);

/// Linears one behind the other as a decode step has them, which devices that record steps launch as a whole.
enum class Chain : std::uint8_t {
  kApart,    ///< each begins when the one in front has ended
  kOverlap,  ///< each may ask for its weights before
  kNorm,     ///< the same, with a norm in front of each
};
/// "apart,overlap,norm", or a part of it.
[[nodiscard]] Result<std::vector<Chain>> parse_chains(const std::string& text);
[[nodiscard]] Result<KernelGroup> chain_cases(const CaseContext& context, const StoredFormat& format,
                                              const LinearShape& shape, const std::vector<std::int32_t>& tokens,
                                              const std::vector<Chain>& chains);

/// `count` weights of one shape in backend memory.
[[nodiscard]] Result<std::vector<Weight>> make_weights(const CaseContext& context, const StoredFormat& format,
                                                       const LinearShape& shape, std::int64_t count);
/// Bytes of one such weight.
[[nodiscard]] Result<double> weight_bytes(const StoredFormat& format, const LinearShape& shape);
/// Weights of so many bytes that fill the working set.
[[nodiscard]] std::int64_t copies_for(const CaseContext& context, double bytes);
/// Where operands don't fit (room.h).
inline constexpr RoomWords kOperands = {"the operands take", "--working-set MIB makes do with less"};

struct ExpertShape {
  std::int64_t experts = 0;
  std::int32_t used = 0;
  std::int64_t dim = 0;
  std::int64_t width = 0;

  [[nodiscard]] std::string name() const { return fmt::format("{}of{} {}x{}", used, experts, dim, width); }
};
/// What is measured of a layer with experts.
enum class ExpertOp : std::uint8_t {
  kExperts,  ///< the experts' products, of choices drawn beforehand
  kMixture,  ///< the router and the experts that it chooses, of other tokens in each step
  kRouter,   ///< the router alone
};
[[nodiscard]] Result<KernelGroup> expert_cases(const CaseContext& context, const StoredFormat& format,
                                               const ExpertShape& shape, const std::vector<ExpertOp>& ops);

/// Decode over cached keys and prefill from nothing: 32 query heads, 8 key heads of 128.
[[nodiscard]] Result<KernelGroup> attention_cases(const CaseContext& context, DType kv_dtype);
/// 16 key heads and 32 value heads of 128.
[[nodiscard]] Result<KernelGroup> delta_net_cases(const CaseContext& context);
/// RMS norms of one token: next to no work, so that what is left is the way from one kernel to the next.
[[nodiscard]] Result<KernelGroup> norm_cases(const CaseContext& context);

// --- operands --------------------------------------------------------------------------------------------------------

/// Backend memory with numbers of mean 0 and variance 1, times `factor`.
[[nodiscard]] Result<std::shared_ptr<Buffer>> random_floats(Backend& backend, std::int64_t count, float factor = 1.0F);
/// Backend memory filled by repeating `bytes`.
[[nodiscard]] Result<std::shared_ptr<Buffer>> repeated_bytes(Backend& backend, const std::vector<std::byte>& bytes,
                                                             std::uint64_t size);
/// A matrix over such memory.
[[nodiscard]] inline MatrixView matrix_of(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
  return {static_cast<float*>(buffer.data()), rows, cols, cols};
}

}  // namespace vernier::bench
