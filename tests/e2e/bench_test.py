#!/usr/bin/env python3
"""`vernier bench`: what it prints, and what it refuses before it takes memory.

Usage: bench_test.py PATH_TO_VERNIER PATH_TO_TESTS_DATA
"""

import json
import unittest

from cli_test import Case, run

TINY = ("bench", "--device", "cpu", "--repeat", "2", "--threads", "1", "--synthetic")


def lines(*words):
    code, out, err = run(*words, "--jsonl")
    assert code == 0, (words, err)
    return [json.loads(line) for line in out.splitlines()]


class Models(Case):
    def test_json_lines_have_the_documented_fields(self):
        results = lines(*TINY, "tiny-qwen3moe", "--tests", "pp16,tg4,tg2x3,pp8+tg2", "--depth", "0,64")
        self.assertEqual([r["test"] for r in results], ["pp16", "tg4", "tg2x3", "pp8+tg2"] * 2)
        self.assertEqual([r["depth"] for r in results], [0] * 4 + [64] * 4)
        for result in results:
            self.assertEqual(set(result), {"test", "depth", "batch", "tok_s", "cpu_s_per_tok", "weight_bytes_per_token",
                                           "cache_bytes_per_token", "gb_s", "gflop_s", "limit", "share_of_limit"})
            self.assertEqual(result["batch"], 3 if result["test"] == "tg2x3" else 1)
            self.assertEqual(set(result["limit"]), {"gb_s", "gflop_s"})
            rate = result["tok_s"]
            self.assertLessEqual(rate["min"], rate["median"])
            self.assertLessEqual(rate["median"], rate["max"])
            for number in (rate["min"], result["weight_bytes_per_token"], result["gb_s"], result["gflop_s"],
                           result["limit"]["gb_s"], result["limit"]["gflop_s"], result["share_of_limit"]):
                self.assertGreater(number, 0)
        one, three = results[1], results[2]  # three sequences share what a step reads
        self.assertLess(three["weight_bytes_per_token"], one["weight_bytes_per_token"])

    def test_table_for_people(self):
        code, out, err = run("bench", "demo", "--tests", "pp32,tg4", "--repeat", "1", "--clock", "cpu")
        self.assertEqual(code, 0, err)
        heading, columns, first, second = out.splitlines()
        self.assertIn("demo.gguf", heading)
        for word in ("tok/s", "min", "max", "GB/s", "share"):
            self.assertIn(word, columns)
        self.assertTrue(first.startswith("pp32"))
        self.assertTrue(second.startswith("tg4"))

    def test_weight_bytes_are_those_of_the_format(self):
        size = {f: lines(*TINY, "tiny-llama", "--tests", "tg1", "--format", f)[0]["weight_bytes_per_token"]
                for f in ("bf16", "q8_0", "fp8-tensor")}
        trunk = 2 * (256 * 256 * 2 + 128 * 256 * 2 + 3 * 512 * 256)
        self.assertEqual(size["bf16"], 2 * (trunk + 513 * 256))  # head, and one row of the embedding
        self.assertEqual(size["q8_0"], (trunk + 513 * 256) // 32 * 34)
        self.assertEqual(size["fp8-tensor"], trunk + 2 * 513 * 256)

    def test_shapes_are_listed(self):
        code, out, _ = run("bench", "--synthetic", "help")
        self.assertEqual(code, 0)
        for shape in ("llama-3.1-8b", "llama-3.2-1b", "qwen3-4b", "qwen3-30b-a3b", "gpt-oss-20b", "gpt-oss-120b",
                      "qwen35-35b-a3b", "gemma4-26b-a4b", "smollm2-135m"):
            self.assertIn(shape, out)

    def test_instruction_sets_can_be_forced(self):
        lines(*TINY, "tiny-llama", "--tests", "tg1", "--cpu-isa", "portable")
        self.refuses(64, "mmx", *TINY, "tiny-llama", "--tests", "tg1", "--cpu-isa", "mmx")

    def test_refusals(self):
        tiny = (*TINY, "tiny-llama")
        self.refuses(64, ["unknown shape 'gpt-7'", "llama-3.1-8b"], *TINY, "gpt-7")
        self.refuses(64, ["'pp' is no test", "tg64x16"], *tiny, "--tests", "pp")
        self.refuses(64, "--depth: 'deep'", *tiny, "--depth", "deep")
        self.refuses(64, ["needs 1112 tokens", "1024"], *tiny, "--tests", "pp512", "--depth", "600")
        self.refuses(64, ["needs 512 tokens", "--ctx is 100"], *tiny, "--tests", "pp512", "--ctx", "100")
        self.refuses(64, "1..2", *tiny, "--layers", "3")
        self.refuses(64, ["unknown format 'int4'", "q8_0"], *tiny, "--format", "int4")
        self.refuses(64, "only GGUF has q8_0", *tiny, "--format", "q8_0", "--container", "safetensors")
        self.refuses(64, "--repeat", "bench", "demo", "--repeat", "0")
        self.refuses(64, "--layers goes with --synthetic", "bench", "demo", "--layers", "1")
        self.refuses(64, "not both", "bench", "demo", "--synthetic", "tiny-llama")
        self.refuses(66, "no such model", "bench", "no-such-file.gguf")

    def test_no_memory_is_said_before_it_is_taken(self):
        self.refuses(71, "tokens", *TINY, "llama-3.1-8b", "--layers", "1", "--tests", "tg1x1000", "--depth", "131000")
        self.refuses(71, ["GiB", "--layers"], *TINY, "gpt-oss-120b", "--format", "f32", "--tests", "tg1")


class Kernels(Case):
    KERNELS = ("bench", "kernels", "--device", "cpu", "--repeat", "1", "--threads", "1", "--working-set", "4")

    def test_no_memory_is_said_before_it_is_taken(self):
        command = ("bench", "kernels", "--device", "cpu", "--repeat", "1", "--working-set", str(1 << 20))
        for operation in (("linear", "--formats", "f32", "--shapes", "16384x16384", "--rows", "1"), ("experts", "--formats", "f32"),
                          ("delta-net",)):
            self.refuses(71, ["the operands take", "--working-set"], *command, "--ops", *operation)

    def test_json_lines(self):
        results = lines(*self.KERNELS, "--ops", "linear", "--formats", "bf16,q4_0", "--rows", "1,3", "--shapes", "64x128")
        self.assertEqual([(r["format"], r["tokens"]) for r in results], [("bf16", 1), ("bf16", 3), ("q4_0", 1), ("q4_0", 3)])
        for result in results:
            self.assertEqual((result["op"], result["shape"]), ("linear", "64x128"))
            self.assertEqual(result["flops"], 2 * 64 * 128 * result["tokens"])
            self.assertGreater(result["share_of_limit"], 0)
        self.assertEqual(results[0]["bytes"], 64 * 128 * 2 + 4 * (64 + 128))

    def test_chain(self):
        results = lines(*self.KERNELS, "--ops", "linear", "--formats", "bf16", "--rows", "2", "--shapes", "64x128",
                        "--chain", "apart,norm")
        self.assertEqual([r["op"] for r in results], ["chain apart", "chain norm"])
        for result in results:
            self.assertEqual(result["flops"], 2 * 64 * 128 * 2)
            self.assertGreater(result["share_of_limit"], 0)

    def test_table_of_states(self):
        code, out, err = run(*self.KERNELS, "--ops", "delta-net")
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out.splitlines()), 4)

    def test_refusals(self):
        self.refuses(64, ["unknown operation 'fft'", "linear"], *self.KERNELS, "--ops", "fft")
        self.refuses(64, ["unknown format 'int4'", "q8_0"], *self.KERNELS, "--formats", "int4")
        self.refuses(64, ["unknown chain 'loop'", "overlap"], *self.KERNELS, "--chain", "loop")
        self.refuses(64, "--chain is of linears", *self.KERNELS, "--ops", "delta-net", "--chain", "apart")
        self.refuses(64, "--rows", *self.KERNELS, "--rows", "0")
        self.refuses(64, "--shapes", *self.KERNELS, "--shapes", "64")
        self.refuses(64, "can't be stored", *self.KERNELS, "--formats", "q4_0", "--shapes", "64x100", "--ops", "linear")


if __name__ == "__main__":
    unittest.main(argv=["bench_test"])
