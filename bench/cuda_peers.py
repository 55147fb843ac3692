#!/usr/bin/env python3
"""Time other libraries' kernels on the shapes of `vernier bench kernels`, for the same run on the same GPU.

    cuda_peers.py                       # cuBLAS (bf16) and attention through PyTorch; the delta net if `fla` is installed
    cuda_peers.py --only linear --rows 1,64

JSON lines: {"library", "op", "shape", "rows", "us", "spread"}. A time is the median of replays of one CUDA graph that goes
through copies of the operands larger together than four times the second-level cache, divided by the calls in it;
"spread" is the least and the greatest. Operands are Gaussian. Weights are [outputs, inputs] as in a linear layer.
"""

import argparse
import importlib.util
import json
import statistics

import torch
import torch.nn.functional as functional

REPLAYS = 9
LINEARS = {"8192x8192": (8192, 8192), "28672x4096": (28672, 4096)}
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
    parser.add_argument("--only", choices=("linear", "attention", "delta-net"), help="default: all of them")
    parser.add_argument("--rows", default="1,8,16,64,128,256,1024,4096", help="of linears (default: %(default)s)")
    arguments = parser.parse_args()
    print(json.dumps({"library": "torch", "version": torch.__version__, "device": torch.cuda.get_device_name(0)}), flush=True)
    with torch.no_grad():
        if arguments.only in (None, "linear"):
            linears([int(word) for word in arguments.rows.split(",")])
        if arguments.only in (None, "attention"):
            attention()
        if arguments.only in (None, "delta-net"):
            if importlib.util.find_spec("fla"):
                delta_net()
            else:
                print(json.dumps({"library": "flash-linear-attention", "failed": "not installed"}), flush=True)


if __name__ == "__main__":
    main()
