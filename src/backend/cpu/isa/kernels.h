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

/// Rows of a weight as they are stored; row 0 is the first.
struct WeightRows {
  const std::byte* codes;
  std::int64_t row_stride;
  const std::byte* codes_end;  ///< bytes before it may be read, those between rows too
  const std::byte* scales;     ///< row r's are those of row (first_row + r) / scale_block_rows
  std::int64_t scale_stride;
  std::int64_t scale_block_rows;
  std::int64_t first_row;
  std::int64_t cols;
  std::int64_t scale_block_cols;                                     ///< of a grid
  float (*grid_scale)(const std::byte* scales, std::int64_t index);  ///< reads a grid's scale
};

/// What a worker reads next, lest it wait for memory there; null: the rows that follow.
struct ComingRows {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  ///< where they lie apart
};

/// Products of weight rows [begin, end) with up to kFewTokens tokens: products[(row - begin) * tokens + t].
struct FewProducts {
  const WeightRows& rows;
  std::int64_t begin;
  std::int64_t end;
  const float* const* x;  ///< prepared rows
  std::int64_t tokens;
  float* products;
  ComingRows coming = {};  ///< after row end - 1, stored as these
};
inline constexpr std::int64_t kFewTokens = 4;

/// A few rows as numbers: row r's segments one behind the other at panel + r * panel_stride, a segment being `steps` x
/// 16 codes, then the scales of 16 lanes. Adds their products with prepared rows, from x_begin on, to totals: tiles of
/// kTileRows x kTileTokens x 16 lanes, one for every kTileTokens tokens.
struct GroupProducts {
  const float* panel;
  std::int64_t panel_stride;
  std::int64_t rows;  ///< at most kTileRows
  std::int64_t steps;
  std::int64_t segments;
  const float* const* x;
  std::int64_t x_begin;
  std::int64_t tokens;
  float* totals;
};

/// A faster way to multiply groups where all numbers are bf16 and no sum gets near the subnormals; with the same
/// results then, so that it may be taken or not from case to case. Both functions return false where it doesn't apply.
struct PairKernels {
  /// Floats [x_begin, x_begin + count) of prepared rows as pairs: those of 16 lanes at two steps make 16 words.
  bool (*pack_inputs)(const float* const* x, std::int64_t x_begin, std::int64_t count, std::int64_t tokens,
                      std::uint32_t* packed);
  bool (*multiply_group)(const GroupProducts& args, const std::uint32_t* packed);
};

/// Products of weight rows [begin, end) with any number of tokens: products[(row - begin) * tokens + t].
struct ManyProducts {
  const WeightRows& rows;
  std::int64_t begin;
  std::int64_t end;
  const float* const* x;  ///< prepared rows
  std::int64_t tokens;
  float* products;
  float* scratch;            ///< many_scratch_floats()
  const PairKernels* pairs;  ///< or null
  std::int64_t width;        ///< of the groups that prepare_group() made, if it did
};
inline constexpr std::int64_t kTileRows = 6;  ///< at most, of any instruction set
inline constexpr std::int64_t kTileTokens = 4;
inline constexpr std::int64_t kPanelValues = 512;
inline constexpr std::int64_t kPanelRowFloats = 2 * kPanelValues;  ///< room for codes and scales of a row

constexpr std::int64_t many_scratch_floats(std::int64_t rows, std::int64_t tokens) {
  const std::int64_t padded_rows = (rows + kTileRows - 1) / kTileRows * kTileRows;
  const std::int64_t padded_tokens = (tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
  return kTileRows * kPanelRowFloats + padded_rows * padded_tokens * 16 + padded_tokens * kPanelValues;
}

/// Tokens whose inputs a tile holds, and values of K that a tile of inputs or weights holds.
inline constexpr std::int64_t kTileColumns = 16;
inline constexpr std::int64_t kTileValues = 32;

/// Weight rows and tokens that matrix instructions multiply at a time.
inline constexpr std::int64_t kTileBlockRows = 32;

/// Floats of scratch of a multiply_many() over tiles.
constexpr std::int64_t tile_scratch_floats(std::int64_t rows, std::int64_t tokens) {
  constexpr std::int64_t kPanel = kTileBlockRows * kPanelValues / 2;  // numbers of 16 bits
  const std::int64_t padded_rows = (rows + kTileBlockRows - 1) / kTileBlockRows * kTileBlockRows;
  const std::int64_t padded_tokens = (tokens + kTileColumns - 1) / kTileColumns * kTileColumns;
  return kPanel + padded_rows * (padded_tokens + kTileColumns);
}

/// How rows of a weight meet activations. Codes of a row come in segments of 16 lanes x `steps`; each lane of a segment
/// has one scale. An activation row is prepared once: put into that order and filled up with zeros. Then per lane and
/// segment the products of codes and activations are summed over the steps, times the scale, and added to the lane's
/// total; in the end the totals of 16 lanes are added. Both ways of multiplying do just that, in the same order, so a
/// product doesn't depend on how many tokens or rows are multiplied together.
struct RowKernels {
  /// Floats of a prepared row.
  std::int64_t (*input_floats)(std::int64_t cols);
  /// `round`: to bf16 first.
  void (*prepare)(const float* x, std::int64_t cols, bool round, float* prepared);
  void (*multiply_few)(const FewProducts& args);
  void (*multiply_many)(const ManyProducts& args);
  /// Where matrix instructions multiply, else null, and then input_floats is what a token takes, prepare and
  /// multiply_few are null and multiply_many serves any number of tokens. Inputs are rounded to bf16 and prepared for
  /// up to kTileColumns tokens together, in columns for `width` of them, the others being zeros: `width` is
  /// kTileColumns where there are more tokens than that, else their number. x[t] of ManyProducts points to the group of
  /// token t, and products come token by token: products[t * (end - begin) + row - begin].
  void (*prepare_group)(const float* const* x, std::int64_t tokens, std::int64_t width, std::int64_t cols,
                        float* prepared) = nullptr;
};

enum class KvType { kF32, kBF16, kF8E4M3 };

/// Positions of an attention tile, and the floats from one of its rows of scores to the next.
inline constexpr std::int64_t kTileKeys = 64;

/// Keys or values of one KV head at up to kTileKeys positions: where each one's elements begin.
struct KvRows {
  const std::byte* const* rows;
  std::int64_t count;
  const std::byte* const* next_rows;  ///< what will be read after these, asked for on the way: from next_begin on
  std::int64_t next_begin;
  std::int64_t next_end;
  std::int64_t dim;
  KvType type;
};

/// Memory that will be read before long: rows of `bytes` bytes.
struct NextRows {
  const std::byte* const* rows;
  std::int64_t count;
  std::int64_t bytes;
};

/// scores[r * kTileKeys + i] = sum over d, in order, of q[r][d] * keys[d * kTileKeys + i] for i < count; up to 15 more
/// numbers of a row are overwritten. The sum of a row doesn't depend on the rows beside it.
struct ScoreTile {
  const float* const* q;
  std::int64_t rows;
  const float* keys;  ///< readable 64 bytes beyond the last number
  std::int64_t count;
  std::int64_t dim;
  float* scores;
  NextRows next;  ///< asked for on the way
};

/// One step of softmaxes that are kept up to date while tiles of scores pass by. For each row: x = scale * score,
/// capped; `largest` becomes the largest x so far; the scores become exp(x - largest), zeros up to a multiple of 16;
/// `keep` = exp(old largest - new largest); total = total * keep + their sum.
struct SoftmaxTile {
  float* scores;
  std::int64_t rows;
  std::int64_t count;
  float scale;
  float soft_cap;  ///< 0: none
  float* largest;  ///< [rows], as the next two
  float* total;
  float* keep;
};

/// sums[r * stride + d] = that * keep[r] + sum over i < count, in order, of weights[r * kTileKeys + i] *
/// values[i * stride + d], with `stride` a multiple of 16.
struct ValueTile {
  const float* weights;
  const float* keep;
  std::int64_t rows;
  const float* values;
  std::int64_t count;
  std::int64_t stride;
  float* sums;
};

inline constexpr std::int64_t kMaxConvolution = 16;

/// out[t * out_stride + c] = silu(sum over j of weights[c * width + j] * rows[t + j][c]) for channels [begin, end).
struct Convolution {
  const float* const* rows;  ///< [tokens + width - 1]
  std::int64_t tokens;
  std::int64_t width;  ///< at most kMaxConvolution
  const float* weights;
  std::int64_t begin;
  std::int64_t end;
  float* out;
  std::int64_t out_stride;
};

inline constexpr std::int64_t kDeltaNetRoom = 64;

/// Tokens of one value head of a gated delta net, one after another: S = decay S; delta = beta (v - S^T k);
/// S += k delta^T; out = S^T q. However tokens are cut into calls, each number comes out the same.
struct DeltaNet {
  const float* q;  ///< [tokens, key_dim]
  const float* k;  ///< [tokens, key_dim]
  const float* v;  ///< token t at v + t * v_stride
  std::int64_t v_stride;
  const float* decay;  ///< [tokens], as the next two
  const float* beta;
  const float* key_query;  ///< k . q
  std::int64_t tokens;
  std::int64_t key_dim;
  std::int64_t value_dim;
  float* state;  ///< [key_dim, value_dim]
  float* room;   ///< scratch of key_dim * kDeltaNetRoom floats
  float* out;    ///< [tokens, value_dim]
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
  /// How its rows are multiplied, or null; scale_block_cols: of a grid.
  const RowKernels* (*row_kernels)(unsigned format, unsigned layout, std::int64_t scale_block_cols);
  /// For multiply_many; or null.
  const PairKernels* pairs;
  /// The kernels for inputs that aren't rounded to bf16; null: these.
  const Kernels* unrounded;
  /// y = x rounded to bf16, nearest even.
  void (*round_to_bf16)(const float* x, std::int64_t n, float* y);
  float (*sum_of_squares)(const float* x, std::int64_t n);
  /// y = x * factor * weight; weight null: ones. y may be x.
  void (*scale)(const float* x, float factor, const float* weight, std::int64_t n, float* y);
  /// y = activation(gate) * up as ActivationSpec says. y may be gate.
  void (*activate)(const Gate& gate, const float* g, const float* up, std::int64_t n, float* y);
  /// keys[d * kTileKeys + i] = element d of row i; up to 15 columns beyond the last row are overwritten.
  void (*expand_keys)(const KvRows& from, float* keys);
  /// values[i * stride + d] = element d of row i, zeros from dim to stride, which is dim rounded up to 16.
  void (*expand_values)(const KvRows& from, float* values);
  void (*score_tile)(const ScoreTile& tile);
  void (*softmax_tile)(const SoftmaxTile& tile);
  void (*add_values)(const ValueTile& tile);
  /// The same straight from the cache, tile.values unused; for few rows, and dim a multiple of 16.
  void (*add_value_rows)(const KvRows& from, const ValueTile& tile);
  /// y = y * keep + x * factor
  void (*blend)(const float* x, float factor, float keep, std::int64_t n, float* y);
  void (*convolve)(const Convolution& args);
  void (*delta_net)(const DeltaNet& args);
  /// sum over i of a[i] * b[i]
  float (*dot)(const float* a, const float* b, std::int64_t n);
  /// y += x
  void (*add)(const float* x, std::int64_t n, float* y);
  /// y = cap * tanh(y / cap)
  void (*soft_cap)(float cap, std::int64_t n, float* y);
  /// y *= sigmoid(gate)
  void (*gate_by_sigmoid)(const float* gate, std::int64_t n, float* y);
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
const Kernels& amx_kernels();
#endif

}  // namespace vernier_isa
