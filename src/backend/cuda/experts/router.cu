// Logits and choice in one launch: blocks compute logits, and the last of those that a token waits for chooses. What a
// row's sum is does not depend on the number of tokens: threads take the same columns in the same order.
#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/experts/choose.cuh"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"
#include "format/format_list.h"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;
constexpr int kThreads = kWarp * kWarps;

/// A row as published; an item is eight columns. kAligned: rows are whole items, each aligned.
template <class F, bool kAligned>
struct PlainRow {
  static constexpr bool kIsAligned = kAligned;
  static constexpr int kRows = 1;
  static constexpr int kCols = 8;
  static constexpr int kHeld = 4;  ///< items of a thread that are asked for before there is input
  using Code = typename F::Element::Code;
  struct alignas(sizeof(Code) * kCols > 16 ? 16 : sizeof(Code) * kCols) Item {
    Code code[kCols];
  };
  const Code* codes;
  int row;
  int cols;

  /// Row `number`; rows of a placed weight are whole elements from an aligned beginning.
  __device__ PlainRow(const WeightRef& w, int number)
      : codes(reinterpret_cast<const Code*>(w.codes + number * w.row_stride)), row(number), cols(w.cols) {}
  static bool is_aligned(const WeightRef& w) {
    return w.cols % kCols == 0 && w.row_stride % alignof(Item) == 0 &&
           reinterpret_cast<std::uintptr_t>(w.codes) % alignof(Item) == 0;
  }
  static __host__ __device__ int blocks(const WeightRef& w) { return w.rows; }
  __device__ int items() const { return (cols + kCols - 1) / kCols; }
  __device__ int first_col(int item) const { return item * kCols; }
  __device__ Item load(int item) const {
    if constexpr (kAligned) {
      return *reinterpret_cast<const Item*>(codes + item * kCols);
    } else {
      Item result = {};
#pragma unroll
      for (int i = 0; i < kCols; ++i) {
        if (item * kCols + i < cols) result.code[i] = codes[item * kCols + i];
      }
      return result;
    }
  }
  static __device__ float value(const Item& item, int /*row*/, int col) { return F::Element::decode(item.code[col]); }
  __device__ int row_of(int /*which*/) const { return row; }
};

struct RouteKernelArgs {
  RouterLogits logits;
  ChooseExperts choice;
  unsigned* arrivals;  ///< [token tiles], zeros
};

template <bool kAligned, int kCount>
__device__ void load_input(const RouteKernelArgs& args, std::int64_t token, int col, float (&to)[kCount]) {
  const float* const x = args.logits.x + token * args.logits.x_stride + col;
  if constexpr (kAligned) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = col + i < args.logits.router.weight.cols ? x[i] : 0.0F;
  }
}

/// A block's rows (kRows of each of kSets sources) times its kTokens tokens.
template <class Rows, int kSets, int kTokens>
struct RouterTile {
  static constexpr int kResults = kSets * Rows::kRows * kTokens;
  float sums[kSets][Rows::kRows][kTokens] = {};

  __device__ void add(const RouteKernelArgs& args, std::int64_t first_token, int col,
                      const typename Rows::Item (&items)[kSets]) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float x[Rows::kCols];
      const std::int64_t token = first_token + t < args.logits.tokens ? first_token + t : args.logits.tokens - 1;
      load_input<Rows::kIsAligned>(args, token, col, x);
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
#pragma unroll
        for (int r = 0; r < Rows::kRows; ++r) {
#pragma unroll
          for (int i = 0; i < Rows::kCols; ++i) {
            sums[s][r][t] = __fmaf_rn(Rows::value(items[s], r, i), x[i], sums[s][r][t]);
          }
        }
      }
    }
  }

  /// Sums over the warp's threads, into shared memory.
  __device__ void leave(float (&partial)[kWarps][kResults]) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int r = 0; r < Rows::kRows; ++r) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          float sum = sums[s][r][t];
#pragma unroll
          for (int step = kWarp / 2; step > 0; step /= 2) {
            sum = __fadd_rn(sum, __shfl_xor_sync(choice::kAllLanes, sum, step));
          }
          if (threadIdx.x % kWarp == 0) partial[warp][(s * Rows::kRows + r) * kTokens + t] = sum;
        }
      }
    }
  }
};

/// Grid: sets of rows, tiles of tokens. Few tokens: one each, and the weights are on their way before the input is.
template <class Rows, int kSets, int kTokens>
__global__ void __launch_bounds__(kThreads) route_kernel(const __grid_constant__ RouteKernelArgs args) {
  extern __shared__ float choice_memory[];
  using Tile = RouterTile<Rows, kSets, kTokens>;
  __shared__ float partial[kWarps][Tile::kResults];
  constexpr int kHeld = kTokens == 1 ? Rows::kHeld : 1;
  release_successor();
  const WeightRef& weight = args.logits.router.weight;
  const int thread = static_cast<int>(threadIdx.x);
  const int last_set = Rows::blocks(weight) - 1;
  const auto rows_of = [&](int s) { return Rows(weight, min(static_cast<int>(blockIdx.x) * kSets + s, last_set)); };
  const int items = rows_of(0).items();
  typename Rows::Item held[kHeld][kSets];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int item = min(thread + h * kThreads, items - 1);
#pragma unroll
    for (int s = 0; s < kSets; ++s) held[h][s] = rows_of(s).load(item);
  }
  wait_for_predecessor();
  const std::int64_t first_token = std::int64_t{blockIdx.y} * kTokens;
  Tile tile;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int item = thread + h * kThreads;
    if (item < items) tile.add(args, first_token, rows_of(0).first_col(item), held[h]);
  }
#pragma unroll 1
  for (int item = thread + kHeld * kThreads; item < items; item += kThreads) {
    typename Rows::Item loaded[kSets];
#pragma unroll
    for (int s = 0; s < kSets; ++s) loaded[s] = rows_of(s).load(item);
    tile.add(args, first_token, rows_of(0).first_col(item), loaded);
  }
  tile.leave(partial);
  __syncthreads();
  if (thread < Tile::kResults) {
    float sum = partial[0][thread];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum = __fadd_rn(sum, partial[warp][thread]);
    const int set = static_cast<int>(blockIdx.x) * kSets + thread / (Rows::kRows * kTokens);
    const int row = Rows(weight, min(set, last_set)).row_of(thread / kTokens % Rows::kRows);
    const std::int64_t token = first_token + thread % kTokens;
    if (set <= last_set && row < weight.rows && token < args.logits.tokens) {
      args.logits.logits[token * weight.rows + row] = finish_product(args.logits.router, row, sum, nullptr);
    }
  }
  if (!arrives_last(args.arrivals + blockIdx.y, gridDim.x)) return;
  const int warp = thread / kWarp;
  const int words = ChoiceMemory::words(args.choice.experts, args.choice.top_k);
  const ChoiceMemory memory = ChoiceMemory::at(choice_memory + warp * words, args.choice.experts);
  for (int t = warp; t < kTokens && first_token + t < args.logits.tokens; t += kWarps) {
    choose_for(args.choice, first_token + t, memory);
  }
}

/// A warp a token.
__global__ void __launch_bounds__(kWarp) choose_kernel(const __grid_constant__ ChooseExperts args) {
  extern __shared__ float choice_memory[];
  release_successor();
  wait_for_predecessor();
  choose_for(args, blockIdx.x, ChoiceMemory::at(choice_memory, args.experts));
}

std::size_t choice_bytes(const ChooseExperts& args) {
  return static_cast<std::size_t>(ChoiceMemory::words(args.experts, args.top_k)) * sizeof(float);
}

template <class Rows>
cudaError_t launch_route(const RouteKernelArgs& args, cudaStream_t stream) {
  constexpr std::int64_t kFewTokens = 16;
  constexpr int kTokens = 8;
  constexpr int kSets = 4 / Rows::kRows;
  const int sets = Rows::blocks(args.logits.router.weight);
  const std::size_t bytes = kWarps * choice_bytes(args.choice);
  if (args.logits.tokens <= kFewTokens) {
    const dim3 grid(static_cast<unsigned>(sets), static_cast<unsigned>(args.logits.tokens));
    return launch_dependent(route_kernel<Rows, 1, 1>, grid, kThreads, bytes, stream, args);
  }
  const dim3 grid(static_cast<unsigned>((sets + kSets - 1) / kSets),
                  static_cast<unsigned>((args.logits.tokens + kTokens - 1) / kTokens));
  return launch_dependent(route_kernel<Rows, kSets, kTokens>, grid, kThreads, bytes, stream, args);
}

}  // namespace

bool has_route_kernel(FormatId format, const WeightRef& router) {
  return has_packed_route(router.packing) || (router.packing == Packing::kNone && format_info(format).has_plain);
}

cudaError_t route(FormatId format, const RouterLogits& logits, const ChooseExperts& choice, unsigned* arrivals,
                  cudaStream_t stream) {
  const WeightRef& weight = logits.router.weight;
  const bool aligned = logits.x_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits.x) % 16 == 0;
  const RouteKernelArgs args = {logits, choice, arrivals};
  if (has_packed_route(weight.packing)) return route_packed(logits, choice, arrivals, stream);
  cudaError_t error = cudaErrorInvalidValue;
  visit_format(format, [&]<class F>(std::type_identity<F>) {
    if constexpr (HasPlain<F>) {
      error = aligned && PlainRow<F, true>::is_aligned(weight) ? launch_route<PlainRow<F, true>>(args, stream)
                                                               : launch_route<PlainRow<F, false>>(args, stream);
    }
  });
  return error;
}

cudaError_t choose_experts(const ChooseExperts& args, cudaStream_t stream) {
  return launch_dependent(choose_kernel, dim3(static_cast<unsigned>(args.tokens)), kWarp, choice_bytes(args), stream,
                          args);
}

}  // namespace vernier::cuda
