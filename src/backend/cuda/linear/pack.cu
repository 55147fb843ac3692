#include <algorithm>

#include "backend/cuda/fragment/group_source.h"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/pack_source.h"
#include "backend/cuda/linear/pack.h"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;

/// What a grid of threads works on.
struct PackExtent {
  PackedShape shape;
  std::int64_t rows;
  std::int64_t cols;
};

template <class Source>
__global__ void __launch_bounds__(kThreads)
    pack_codes_kernel(Source source, PackExtent extent, std::uint32_t* to, PackReport* report) {
  const std::int64_t words = extent.shape.code_bytes() / 4;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    const std::uint32_t word = packed_word(source, extent.shape, extent.rows, extent.cols, i);
    to[i] = word;
    if (code_bits(extent.shape.packing) == 8) {
      for (int byte = 0; byte < 4; ++byte) {
        const auto code = static_cast<E4M3Codec::Code>(word >> (8 * byte));
        if (!E4M3Codec::is_finite(code)) report->unfit = 1;
      }
    } else if (extent.shape.packing == Packing::kF16) {
      for (int half = 0; half < 2; ++half) {
        if (!F16Codec::is_finite(static_cast<F16Codec::Code>(word >> (16 * half)))) report->unfit = 1;
      }
    } else if (extent.shape.packing == Packing::kF32) {
      if (!can_split(__uint_as_float(word))) report->unfit = 1;
    }
  }
}

template <class Source>
__global__ void __launch_bounds__(kThreads)
    pack_scales_kernel(Source source, PackExtent extent, std::uint8_t* to, PackReport* report) {
  const int blocks = kChunkCols / scale_cols(extent.shape.packing);
  const std::int64_t blocks_a_row = extent.shape.chunks * blocks;
  const std::int64_t count = extent.shape.tiles * kTileRows * blocks_a_row;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row = i / blocks_a_row;
    const std::int64_t block = i % blocks_a_row;
    std::uint8_t& out = to[packed_scale_at(extent.shape, row, block)];
    if (row >= extent.rows || block * scale_cols(extent.shape.packing) >= extent.cols) {
      out = extent.shape.packing == Packing::kE2M1ByE4M3 ? kPackedZero : std::uint8_t{127};  // of codes that are zero
      continue;
    }
    out = packed_scale(source, extent.shape, row, block);
    const std::uint8_t code = source.scale(row, block);
    if (extent.shape.packing == Packing::kE2M1ByE4M3) {
      if (!can_pack_scale(code)) report->unfit = 1;
    } else {
      if (code < report->smallest) atomicMin(&report->smallest, code);
      if (code > report->largest) atomicMax(&report->largest, code);
    }
  }
}

template <class F>
__global__ void __launch_bounds__(kThreads)
    pack_groups_kernel(const __grid_constant__ WeightRef from, PackedShape shape, std::uint32_t* to) {
  constexpr int kWords = group_shape(GroupSource<F>::kPacking).chunk_bytes() / 4;
  const std::int64_t words = shape.tiles * shape.chunks * kWords;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    const std::int64_t row = i / kWords / shape.chunks * kTileRows;
    const std::int64_t col = i / kWords % shape.chunks * kChunkCols;
    const std::byte* codes = from.codes + row * from.row_stride + col / F::kBlockValues * F::kBlockBytes;
    const ChunkSource chunk = {codes, from.row_stride, from.rows - row, from.cols - col};
    to[i] = packed_chunk_word<F>(chunk, static_cast<int>(i % kWords));
  }
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(std::min<std::int64_t>((count + kThreads - 1) / kThreads, 1 << 16));
}

void pack_groups(const PackJob& job, cudaStream_t stream) {
  visit_format(job.format, [&]<class F>(std::type_identity<F>) {
    if constexpr (GroupSource<F>::kPacking != Packing::kNone) {
      const std::int64_t words =
          job.shape.tiles * job.shape.chunks * (group_shape(GroupSource<F>::kPacking).chunk_bytes() / 4);
      pack_groups_kernel<F><<<blocks_for(words), kThreads, 0, stream>>>(job.from, job.shape,
                                                                        reinterpret_cast<std::uint32_t*>(job.codes));
    }
  });
}

}  // namespace

cudaError_t pack_weight(const PackJob& job, cudaStream_t stream) {
  if (has_groups(job.shape.packing)) {
    pack_groups(job, stream);
    return cudaGetLastError();
  }
  const PackExtent extent = {job.shape, job.from.rows, job.from.cols};
  visit_pack_source(job.format, job.layout, job.from, [&]<class Source>(const Source& source) {
    const unsigned blocks = blocks_for(job.shape.code_bytes() / 4);
    auto* const codes = reinterpret_cast<std::uint32_t*>(job.codes);
    if constexpr (Source::kPacking == Packing::kF32) {
      if (job.shape.packing == Packing::kBF16) {
        pack_codes_kernel<<<blocks, kThreads, 0, stream>>>(UpperHalves<Source>{source}, extent, codes, job.report);
        return;
      }
    }
    pack_codes_kernel<<<blocks, kThreads, 0, stream>>>(source, extent, codes, job.report);
    if constexpr (Source::kHasScales) {
      pack_scales_kernel<<<blocks_for(job.shape.scale_bytes()), kThreads, 0, stream>>>(
          source, extent, reinterpret_cast<std::uint8_t*>(job.scales), job.report);
    }
  });
  return cudaGetLastError();
}

}  // namespace vernier::cuda
