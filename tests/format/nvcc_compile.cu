// Compiled, not run, where nvcc is found: the format headers must work in device code without relaxed constexpr.
#include "format/format_list.h"
#include "format/grid_scale.h"

namespace {

/// Decodes one block a thread, so that every function that a kernel may call is instantiated for the device.
template <class F>
__global__ void decode_blocks(const std::byte* blocks, float* out) {
  const int block = static_cast<int>(blockIdx.x);
  F::decode_block(blocks + block * F::kBlockBytes, out + block * F::kBlockValues);
}

template <class F>
__global__ void decode_separate(const std::byte* codes, const std::byte* scales, float* out) {
  vernier::decode_codes<F, typename F::Separate>(codes, scales, blockIdx.x * F::kScaleValues, F::kScaleValues, out);
}

template <class F>
__global__ void decode_plain(const std::byte* codes, float* out) {
  const int i = static_cast<int>(blockIdx.x);
  out[i] = vernier::decode_code<typename F::Element>(vernier::load_code<F, typename F::Plain>(codes, i));
}

__global__ void encode(const float* in, std::uint16_t* out) {
  out[0] = vernier::BF16Codec::encode(in[0]);
  out[1] = vernier::F16Codec::encode(in[0]);
  out[2] = vernier::E4M3Codec::encode(in[0]);
}

template <class F>
void instantiate() {
  if constexpr (vernier::HasInterleaved<F>) decode_blocks<F><<<1, 1>>>(nullptr, nullptr);
  if constexpr (vernier::HasSeparate<F>) {
    if constexpr (!std::is_same_v<typename F::Scale, vernier::GridScale>) {
      decode_separate<F><<<1, 1>>>(nullptr, nullptr, nullptr);
    }
  }
  if constexpr (vernier::HasPlain<F>) decode_plain<F><<<1, 1>>>(nullptr, nullptr);
}

template <class... Formats>
void instantiate_all(vernier::FormatTypes<Formats...>) {
  (instantiate<Formats>(), ...);
}

}  // namespace

void launch_everything() {
  instantiate_all(vernier::FormatList{});
  encode<<<1, 1>>>(nullptr, nullptr);
}
