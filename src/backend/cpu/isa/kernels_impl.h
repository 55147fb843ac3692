// The table of one instruction set, from the lanes that its unit included before.
#pragma once

#include "backend/cpu/isa/attention_impl.h"
#include "backend/cpu/isa/ceiling_impl.h"
#include "backend/cpu/isa/decode_impl.h"
#include "backend/cpu/isa/delta_net_impl.h"
#include "backend/cpu/isa/kv_rows_impl.h"
#include "backend/cpu/isa/math_impl.h"
#include "backend/cpu/isa/rows_impl.h"

namespace {

constexpr vernier_isa::Kernels kKernels = {
    .name = Lanes::kName,
    .decode_row = find_decoder,
    .row_kernels = find_row_kernels,
    .pairs = nullptr,
    .unrounded = nullptr,
    .round_to_bf16 = round_to_bf16,
    .sum_of_squares = sum_of_squares,
    .scale = scale,
    .activate = activate_all,
    .expand_keys = expand_keys,
    .expand_values = expand_values,
    .score_tile = score_tile,
    .softmax_tile = softmax_tile,
    .add_values = add_values,
    .add_value_rows = add_value_rows,
    .blend = blend,
    .convolve = convolve,
    .delta_net = delta_net,
    .dot = dot,
    .add = add,
    .soft_cap = soft_cap,
    .gate_by_sigmoid = gate_by_sigmoid,
    .fold_bytes = fold_bytes,
    .spin_multiply_adds = spin_multiply_adds,
};

}  // namespace
