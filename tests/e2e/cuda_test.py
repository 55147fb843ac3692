#!/usr/bin/env python3
"""The program on a machine with an NVIDIA GPU: what it says of the device, and what of wrong input.

Usage: cuda_test.py PATH_TO_VERNIER PATH_TO_TESTS_DATA

Every test is skipped where `vernier devices` lists no GPU.
"""

import json
import unittest

from cli_test import Case, run

MIXTURE = ("bench", "--device", "cuda", "--synthetic", "tiny-qwen3moe", "--tests", "tg4", "--repeat", "1")


def has_gpu():
    return "GPU 0:" in run("devices")[1]


class Cuda(Case):
    def setUp(self):
        if not has_gpu():
            self.skipTest("no NVIDIA GPU")


class Devices(Cuda):
    def test_devices_names_the_gpu_and_its_memory(self):
        code, out, err = run("devices")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"cuda +NVIDIA GPUs; [\d.]+ GiB of [\d.]+ GiB free")
        self.assertRegex(out, r"GPU 0: .+, compute capability \d+\.\d, \d+ SMs, driver for CUDA \d+\.\d")

    def test_a_gpu_that_is_not_there(self):
        for verb in (("run", "demo", "-p", "x", "-n", "1"), ("inspect", "demo", "--fit"), ("bench", "demo", "--tests", "tg1")):
            self.refuses(69, "there is no GPU 1000", *verb, "--device", "cuda:1000")

    def test_a_name_that_is_no_device(self):
        for name in ("cuda:x", "cuda:-1", "cuda:", "cuda:99999999999999999999", "cuda:0:0"):
            self.refuses(64, "cuda:INDEX", "run", "demo", "-p", "x", "-n", "1", "--device", name)

    def test_hidden_gpus_are_said_to_be_hidden(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        self.refuses(69, ["shows no GPU", "CUDA_VISIBLE_DEVICES"], "run", "demo", "-p", "x", "-n", "1", "--device", "cuda",
                     env=hidden)
        code, out, err = run("devices", env=hidden)
        self.assertEqual(code, 0, err)
        self.assertIn("shows no GPU", out)
        self.assertEqual(run("run", "demo", "-p", "x", "-n", "1", env=hidden)[0], 0)  # `auto` goes to the CPU


class Memory(Cuda):
    def test_fit_is_a_report(self):
        code, out, err = run("inspect", "demo", "--fit", "--device", "cuda", "--json")
        self.assertEqual(code, 0, err)
        fit = json.loads(out)["fit"]
        self.assertTrue(fit["fits"])
        self.assertLess(fit["needed_bytes"], fit["available_bytes"])
        self.assertEqual(run("inspect", "demo", "--fit", "--device", "cuda", "-c", "16777216")[0], 0)

    def test_caches_that_cannot_fit_name_the_context_that_would(self):
        command = ("bench", "--synthetic", "llama-3.1-8b", "--layers", "1", "--device", "cuda", "--tests", "tg1x1000",
                   "--depth", "131000")
        self.refuses(71, ["the model needs", "available"], *command)
        self.assertRegex(run(*command)[2], r"largest context that fits is [1-9]\d* tokens")

    def test_operands_that_cannot_fit(self):
        self.refuses(71, ["the operands take", "--working-set"], "bench", "kernels", "--device", "cuda", "--ops", "linear",
                     "--formats", "bf16", "--rows", "1", "--repeat", "1", "--working-set", "1000000")


class Experts(Cuda):
    def test_cache_sizes_that_are_none(self):
        for size in ("0", "0%", "101%", "-1", "x", "1e9", "5 GiB of it"):
            self.refuses(64, ["malformed --expert-cache", "2GiB"], *MIXTURE, "--experts", "offload", f"--expert-cache={size}")

    def test_a_cache_with_less_room_than_a_token_needs(self):
        for size in ("1", "1KiB"):
            self.refuses(64, ["a token chooses 2", "--expert-cache 2"], *MIXTURE, "--experts", "offload", "--expert-cache", size)

    def test_unknown_words(self):
        self.refuses(64, ["unknown --expert-store 'disk'", "memory, file"], *MIXTURE, "--expert-store", "disk")
        self.refuses(64, "offload", *MIXTURE, "--experts", "everywhere")

    def test_every_placement_starts(self):
        stores = [("--expert-store", store) for store in ("memory", "file")]
        for experts, flags in [("fused", ()), ("cpu", ()), *((e, store) for e in ("offload", "hybrid") for store in stores)]:
            code, _, err = run(*MIXTURE, "--experts", experts, *flags)
            self.assertEqual(code, 0, (experts, flags, err))

    def test_a_store_goes_with_slots(self):
        for experts in ("fused", "cpu"):
            self.refuses(64, "--expert-store goes with", *MIXTURE, "--experts", experts, "--expert-store", "file")


class Text(Cuda):
    def test_the_text_is_that_of_the_cpu(self):
        words = ("run", "demo", "-p", "hello", "-n", "32", "--temp", "0", "--quiet")
        texts = {device: run(*words, "--device", device) for device in ("cpu", "cuda")}
        self.assertEqual(texts["cuda"][0], 0, texts["cuda"][2])
        self.assertEqual(texts["cuda"][1], texts["cpu"][1])


if __name__ == "__main__":
    unittest.main(argv=["cuda_test"])
