#!/usr/bin/env python3
"""Time other libraries' kernels on the shapes of `vernier bench kernels`, for the same run on the same GPU.

    cuda_peers.py                       # cuBLAS (bf16) and attention through PyTorch; the others that are installed
    cuda_peers.py --only linear --rows 1,64

Others: flash-linear-attention (`fla`) for the delta net, humming-kernels for 4-bit and FP8 weights, flashinfer-python for
attention. The last two compile kernels when they are first called.

JSON lines: {"library", "op", "shape", "rows", "us", "spread"}. A time is the median of replays of one CUDA graph that goes
through copies of the operands larger together than four times the second-level cache, divided by the calls in it;
"spread" is the least and the greatest. Operands are Gaussian. Weights are [outputs, inputs] as in a linear layer.
"""

import argparse
import copy
import importlib.util
import json
import statistics

import torch
import torch.nn.functional as functional

REPLAYS = 9
LINEARS = {"8192x8192": (8192, 8192), "28672x4096": (28672, 4096)}
HUMMING = {
    "nvfp4": {"dtype": "float4e2m1", "scale_dtype": "float8e4m3", "group_size": 16, "scale_2_type": "tensor"},
    "mxfp4": {"dtype": "float4e2m1", "scale_dtype": "float8e8m0", "group_size": 32},
    "fp8-block": {"dtype": "float8e4m3", "scale_dtype": "float32", "group_size": 128, "group_size_n": 128, "scale_type": "block"}}
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # of attention, as Llama-3.1-8B has them
VALUE_HEADS, STATE_DIM = 32, 128  # of the delta net, as Qwen3.5-35B-A3B has them; its 16 key heads repeated


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def copies_of(numbers_of_bytes):
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(24, 4 * cache // numbers_of_bytes + 1))


def graph_times(calls):
    """Microseconds a call, one figure a replay."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    times = []
    for i in range(REPLAYS + 2):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return times


def report(library, op, shape, rows, times):
    line = {"library": library, "op": op, "shape": shape, "rows": rows, "us": round(statistics.median(times), 2)}
    print(json.dumps({**line, "spread": [round(min(times), 2), round(max(times), 2)]}), flush=True)


def linears(rows_list):
    for name, (outputs, inputs) in LINEARS.items():
        weights = [normal(outputs, inputs) for _ in range(copies_of(outputs * inputs * 2))]
        for rows in rows_list:
            x = normal(rows, inputs)
            y = torch.empty(rows, outputs, device="cuda", dtype=torch.bfloat16)
            report("cuBLAS bf16", "linear", name, rows, graph_times([lambda w=w: torch.matmul(x, w.t(), out=y) for w in weights]))


def humming(rows_list):
    """Exact 4-bit and FP8 weights, inputs and results in bf16."""
    from humming.layer import HummingLayer  # pylint: disable=import-error
    from humming.schema import HummingWeightSchema  # pylint: disable=import-error

    for kind, config in HUMMING.items():
        for name, (outputs, inputs) in LINEARS.items():
            layer = HummingLayer(shape_n=outputs, shape_k=inputs, weight_config=dict(config), torch_dtype=torch.bfloat16).cuda()
            weight = normal(outputs, inputs) / inputs**0.5
            layer.load_from_tensors(HummingWeightSchema.quant_tensor(weight, layer.weight_schema, torch.bfloat16,
                                                                     allow_negative_scale=False))
            layer.transform()
            layers = [layer] + [copy.deepcopy(layer) for _ in range(copies_of(outputs * inputs // 2) - 1)]
            for rows in rows_list:
                x = normal(rows, inputs)
                report(f"Humming {kind}", "linear", name, rows, graph_times([lambda one=one: one(x) for one in layers]))


def attention():
    for tokens in (512, 2048, 4096, 8192):
        q = normal(1, HEADS, tokens, HEAD_DIM)
        k, v = (normal(1, KV_HEADS, tokens, HEAD_DIM) for _ in range(2))
        for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
            def call():
                with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            try:
                report(f"PyTorch {backend}", "prefill", f"{HEADS}/{KV_HEADS} heads of {HEAD_DIM}", tokens, graph_times([call] * 4))
            except RuntimeError as error:
                print(json.dumps({"library": backend, "op": "prefill", "rows": tokens, "failed": str(error)[:200]}), flush=True)


def flashinfer_attention():
    import flashinfer  # pylint: disable=import-error

    page = 16
    for sequences, depth in ((1, 1024), (1, 32768), (32, 4096)):
        pages = depth // page
        starts = torch.arange(sequences + 1, dtype=torch.int32, device="cuda") * pages
        numbers = torch.randperm(sequences * pages, device="cuda").to(torch.int32)
        last = torch.full((sequences,), page, dtype=torch.int32, device="cuda")
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.zeros(256 << 20, dtype=torch.uint8, device="cuda"), "NHD", use_cuda_graph=True, use_tensor_cores=True,
            paged_kv_indptr_buffer=starts, paged_kv_indices_buffer=numbers, paged_kv_last_page_len_buffer=last)
        decode.plan(starts, numbers, last, HEADS, KV_HEADS, HEAD_DIM, page, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
        size = 4 * sequences * depth * KV_HEADS * HEAD_DIM
        caches = [normal(sequences * pages, 2, page, KV_HEADS, HEAD_DIM) for _ in range(copies_of(size))]
        q = normal(sequences, HEADS, HEAD_DIM)
        report("FlashInfer", "attention", f"{sequences} x {depth}", sequences, graph_times([lambda c=c: decode.run(q, c) for c in caches]))
    for tokens in (2048, 8192):
        q = normal(tokens, HEADS, HEAD_DIM)
        k, v = (normal(tokens, KV_HEADS, HEAD_DIM) for _ in range(2))
        report("FlashInfer FA3", "prefill", f"{HEADS}/{KV_HEADS} heads of {HEAD_DIM}", tokens,
               graph_times([lambda: flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True, backend="fa3")] * 4))


def delta_net():
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule  # pylint: disable=import-error

    def operands(batch, tokens):
        q, k = (normal(batch, tokens, VALUE_HEADS, STATE_DIM) for _ in range(2))
        v = normal(batch, tokens, VALUE_HEADS, STATE_DIM)
        g = functional.logsigmoid(normal(batch, tokens, VALUE_HEADS, dtype=torch.float32))
        beta = torch.rand(batch, tokens, VALUE_HEADS, device="cuda").bfloat16()
        return (q, k, v, g, beta), 0.1 * normal(batch, VALUE_HEADS, STATE_DIM, STATE_DIM, dtype=torch.float32)

    def run(rule, batch, tokens, op):
        values, state = operands(batch, tokens)
        q, k, v, g, beta = values

        def call():
            return rule(q, k, v, g, beta=beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)

        report("flash-linear-attention", op, f"{batch} x {tokens}", batch * tokens, graph_times([call] * 4))

    for tokens in (512, 2048, 32768):
        run(chunk_gated_delta_rule, 1, tokens, "delta-net")
    for batch in (1, 16, 32, 128, 512):
        run(fused_recurrent_gated_delta_rule, batch, 1, "delta-net")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("linear", "attention", "delta-net", "humming", "flashinfer"), help="default: all")
    parser.add_argument("--rows", default="1,8,16,64,128,256,1024,4096", help="of linears (default: %(default)s)")
    arguments = parser.parse_args()
    rows = [int(word) for word in arguments.rows.split(",")]
    print(json.dumps({"library": "torch", "version": torch.__version__, "device": torch.cuda.get_device_name(0)}), flush=True)
    with torch.no_grad():
        for name, module, measure in (("linear", "torch", lambda: linears(rows)), ("attention", "torch", attention),
                                      ("delta-net", "fla", delta_net), ("humming", "humming", lambda: humming(rows)),
                                      ("flashinfer", "flashinfer", flashinfer_attention)):
            if arguments.only not in (None, name):
                continue
            if not importlib.util.find_spec(module):
                print(json.dumps({"library": module, "failed": "not installed"}), flush=True)
                continue
            try:
                measure()
            except Exception as error:  # pylint: disable=broad-exception-caught  # a library's own; the others go on
                print(json.dumps({"library": module, "failed": repr(error)[:300]}), flush=True)


if __name__ == "__main__":
    main()
