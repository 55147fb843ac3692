// The inner loops that exist once for each instruction set, as a table of function pointers, and nothing else.
//
// The units in this folder that implement it are compiled for CPUs that the machine may not have. An inline function
// of the standard library or of Vernier that such a unit also emits could be picked by the linker for the whole program
// and crash it on an older CPU. Hence the rules of this folder: this header and its implementations use plain types and
// live in a namespace of their own, the format headers are included under another namespace name (see avx2.cc), no
// std:: template is called, and tests/backend checks that the objects define no other weak symbol.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vernier_isa {

/// Decodes a row of `cols` values without second-level scale; scales of a grid aren't applied either.
using DecodeRow = void (*)(const std::byte* codes, const std::byte* scales, std::int64_t cols, float* out);

/// Products of decoded weight rows and activation rows: products[r * product_stride + t] = sum over k of
/// w[r * w_stride + k] * x[t][k]. A product is summed over k in one fixed order, whatever the numbers of rows and
/// tokens. With segments, each run of `segment` values of k has a sum of its own that is multiplied by
/// segment_scales[r * segment_stride + k / segment] before it is added.
struct DotTile {
  const float* w;
  std::int64_t w_stride;
  std::int64_t rows;
  const float* const* x;
  std::int64_t tokens;
  std::int64_t cols;
  std::int64_t segment;  ///< 0: no segments
  const float* segment_scales;
  std::int64_t segment_stride;
  float* products;
  std::int64_t product_stride;
};

enum class KvType { kF32, kBF16, kF8E4M3 };

/// Keys or values of one KV head at consecutive positions of a page.
struct KvRun {
  const std::byte* first;
  std::int64_t stride_bytes;  ///< from one position to the next
  std::int64_t count;
  std::int64_t dim;
  KvType type;
};

enum class GateKind { kSilu, kGeluTanh, kClampedSwiglu };

struct Gate {
  GateKind kind;
  float alpha;
  float limit;
};

struct Kernels {
  const char* name;
  /// The decoder of a format (the number of its FormatId) in a layout (of its WeightLayout), or null.
  DecodeRow (*decode_row)(unsigned format, unsigned layout);
  void (*dot_tile)(const DotTile& tile);
  /// y = x rounded to bf16, nearest even.
  void (*round_to_bf16)(const float* x, std::int64_t n, float* y);
  float (*sum_of_squares)(const float* x, std::int64_t n);
  /// y = x * factor * weight; weight null: ones. y may be x.
  void (*scale)(const float* x, float factor, const float* weight, std::int64_t n, float* y);
  /// y = activation(gate) * up as ActivationSpec says. y may be gate.
  void (*activate)(const Gate& gate, const float* g, const float* up, std::int64_t n, float* y);
  /// scores[i] = q . key i
  void (*score_keys)(const float* q, const KvRun& keys, float* scores);
  /// x = exp(x - largest) in place; returns the sum.
  float (*exponentials)(float* x, std::int64_t n, float largest);
  /// sum = sum * keep + sum over i of weights[i] * value i
  void (*add_values)(const float* weights, const KvRun& values, float keep, float* sum);
  /// Reads `count` bytes and folds them into a number, which means nothing: measures memory.
  std::uint64_t (*fold_bytes)(const std::byte* bytes, std::int64_t count);
  /// Multiply-adds of this instruction set's fastest kind for products of bf16, from registers alone; returns how many
  /// floating-point operations they were. `sink` holds kSinkFloats numbers, which change: measures arithmetic.
  double (*spin_multiply_adds)(std::int64_t rounds, float* sink);
};
inline constexpr int kSinkFloats = 16;

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
#endif

}  // namespace vernier_isa
