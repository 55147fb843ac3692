#!/usr/bin/env python3
"""The command line as users and scripts meet it: output, errors, exit statuses, precedence of settings.

Usage: cli_test.py PATH_TO_VERNIER PATH_TO_TESTS_DATA
"""

import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

VERNIER, DATA = sys.argv[1], Path(sys.argv[2]).resolve()
ZOO = DATA / "zoo"
ERROR = re.compile(r"vernier: error: [^\n]+\n([^\n]+\n)?$")


def run(*words, stdin="", env=None, timeout=120):
    """Runs the program; standard input is text or bytes."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VERNIER_")} | (env or {})
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([VERNIER, *map(str, words)], input=data, capture_output=True, env=environment,
                          timeout=timeout, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


class Case(unittest.TestCase):
    def refuses(self, status, words, *command, **options):
        code, out, err = run(*command, **options)
        self.assertEqual(code, status, (command, out, err))
        self.assertRegex(err, ERROR)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, err)


class Run(Case):
    def test_streams_text_and_statistics(self):
        code, out, err = run("run", "demo", "-p", "In the beginning", "-n", "12", "--temp", "0")
        self.assertEqual(code, 0, err)
        self.assertTrue(out.strip())
        self.assertIn("tokens/s", err)

    def test_greedy_ids_equal_the_reference_in_f32(self):
        for model, expected in (("demo", "llama/nvfp4"), (ZOO / "llama/nvfp4", "llama/nvfp4"),
                                (ZOO / "qwen3moe/nvfp4", "qwen3moe/nvfp4")):
            prompts = json.loads((ZOO / f"{expected}.expected.json").read_text())["prompts"]
            ids = ",".join(map(str, prompts[0]["prompt_ids"]))
            code, out, err = run("run", model, "--ids", ids, "-n", "256", "--temp", "0", "--ignore-eos", "--precision",
                                 "f32", "--device", "cpu", "--json")
            self.assertEqual(code, 0, err)
            answer = json.loads(out)
            self.assertEqual(answer["ids"], prompts[0]["greedy_ids"])
            if "<|" not in prompts[0]["greedy_text"]:  # special tokens are no text
                self.assertEqual(answer["text"], prompts[0]["greedy_text"])
            self.assertEqual(answer["finish_reason"], "length")
            self.assertEqual(answer["prompt_ids"], prompts[0]["prompt_ids"])
            self.assertEqual((answer["device"], answer["precision"], answer["experts"]), ("cpu", "f32", "cpu"))

    def test_prompts_tokenize_to_the_reference_ids(self):
        for model in ("llama/nvfp4", "qwen3/fp8-block", "qwen3moe/nvfp4"):
            for prompt in json.loads((ZOO / f"{model}.expected.json").read_text())["prompts"]:
                code, out, err = run("tokenize", ZOO / model, "--jsonl", stdin=json.dumps(prompt["text"]) + "\n")
                self.assertEqual(json.loads(out), prompt["prompt_ids"], err)

    def test_chat_template_applies_unless_raw(self):
        chat = json.loads(run("run", "demo", "-p", "Hello", "-n", "1", "--json")[1])["prompt_ids"]
        raw = json.loads(run("run", "demo", "-p", "Hello", "-n", "1", "--json", "--raw")[1])["prompt_ids"]
        self.assertNotEqual(chat, raw)
        self.assertEqual(raw, json.loads(run("tokenize", "demo", "-p", "Hello", "--json")[1]))

    def test_special_token_text_of_users_stays_text(self):
        plain = json.loads(run("run", "demo", "-p", "x", "-n", "1", "--json")[1])["prompt_ids"]
        tokens = json.loads((ZOO / "llama/nvfp4/tokenizer.json").read_text())["added_tokens"]
        special = [t for t in tokens if t["special"]]
        for token in special:
            ids = json.loads(run("run", "demo", "-p", token["content"], "-n", "1", "--json")[1])["prompt_ids"]
            self.assertEqual(ids.count(token["id"]), plain.count(token["id"]), token)

    def test_same_seed_same_text(self):
        words = ("run", "demo", "-p", "And", "-n", "16", "--temp", "1", "--json", "--ignore-eos")
        first, again = (json.loads(run(*words, "--seed", "7")[1])["ids"] for _ in range(2))
        other = json.loads(run(*words, "--seed", "8")[1])["ids"]
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_stop_strings_and_logprobs(self):
        prompts = json.loads((ZOO / "llama/nvfp4.expected.json").read_text())["prompts"]
        ids = ",".join(map(str, prompts[0]["prompt_ids"]))
        stop = prompts[0]["greedy_text"][20:29]
        answer = json.loads(run("run", "demo", "--ids", ids, "--temp", "0", "--precision", "f32", "--stop", stop,
                                "--json", "--logprobs", "3")[1])
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], prompts[0]["greedy_text"].split(stop)[0])
        self.assertEqual([entry["id"] for entry in answer["logprobs"]], answer["ids"])
        for entry in answer["logprobs"]:
            self.assertEqual(entry["top"][0][0], entry["id"])
            self.assertEqual(len(entry["top"]), 3)

    def test_prompt_from_standard_input_and_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("In the beginning")
            file.flush()
            by_file = json.loads(run("run", "demo", "-f", file.name, "-n", "4", "--temp", "0", "--json")[1])
        by_pipe = json.loads(run("run", "demo", "-n", "4", "--temp", "0", "--json", stdin="In the beginning")[1])
        self.assertEqual(by_file["ids"], by_pipe["ids"])

    def test_interrupt_ends_with_130(self):
        with subprocess.Popen([VERNIER, "run", "demo", "-p", "And", "--ignore-eos", "--device", "reference"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(4)  # it streams
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 130, err)

    def test_a_placement_of_experts_that_are_not_there_is_said_to_be_idle(self):
        code, _, err = run("run", "demo", "-p", "x", "-n", "1", "--experts", "cpu")
        self.assertEqual(code, 0, err)
        self.assertIn("no experts: --experts cpu changes nothing", err)
        self.assertNotIn("no experts", run("run", "demo", "-p", "x", "-n", "1")[2])

    def test_refusals(self):
        self.refuses(66, "no such model", "run", "no-such-model", "-p", "x")
        self.refuses(64, "prompt[0]", "run", "demo", "--ids", "-1")
        self.refuses(64, "prompt[1]", "run", "demo", "--ids", "1,99999")
        self.refuses(64, "ids must be integers", "run", "demo", "--ids", "1,x")
        self.refuses(64, "prompt is empty", "run", "demo", "--ids", "")
        self.refuses(64, "temperature", "run", "demo", "-p", "x", "--temp", "-1")
        self.refuses(64, "top_p", "run", "demo", "-p", "x", "--top-p", "1.1")
        self.refuses(64, "top_p", "run", "demo", "-p", "x", "--top-p", "nan")
        self.refuses(64, "logprobs", "run", "demo", "-p", "x", "--logprobs", "21")
        self.refuses(64, "logit-bias", "run", "demo", "-p", "x", "--logit-bias", "5")
        self.refuses(64, "bans every token", "run", "demo", "-p", "x", *[
            word for i in range(1024) for word in ("--logit-bias", f"{i}=-100")])
        self.refuses(64, "context", "run", "demo", "--ids", ",".join(["1"] * 64), "-c", "64")
        self.refuses(64, "--no-such-flag", "run", "demo", "--no-such-flag")
        self.refuses(64, "one of -p, -f and --ids", "run", "demo", "-p", "x", "--ids", "1")
        self.refuses(69, "needs a GPU", "run", "demo", "-p", "x", "--experts", "fused")
        self.refuses(69, "cuda", "run", "demo", "-p", "x", "--device", "cuda")
        self.refuses(69, "--expert-store needs a GPU", "run", "demo", "-p", "x", "--expert-store", "file", "--device", "cpu")
        self.refuses(64, "auto, memory, file", "run", "demo", "-p", "x", "--expert-store", "disk")
        self.refuses(64, "precision", "run", "demo", "-p", "x", "--precision", "fp64")
        self.refuses(64, ["unknown verb 'nonsense'", "inspect"], "nonsense")
        self.refuses(64, "subcommand")


class Hostile(Case):
    """Files that are whole as containers and wrong as models (rows K3, K9, K10, C31 of docs/hostile-inputs.md)."""

    def changed(self, folder, file, change):
        copy = Path(folder) / "model"
        shutil.copytree(ZOO / "llama/nvfp4", copy)
        content = json.loads((copy / file).read_text())
        change(content)
        (copy / file).write_text(json.dumps(content))
        return copy

    def test_unknown_architecture_lists_the_known_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.changed(folder, "config.json", lambda config: config.update(
                model_type="nonsense", architectures=["Nonsense"], auto_map={"AutoModel": "evil.py"}))
            (path / "evil.py").write_text("raise SystemExit(99)")
            self.refuses(65, ["nonsense", "qwen3moe", "gpt-oss"], "inspect", path)

    def test_integers_of_fifty_digits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.changed(folder, "config.json", lambda config: config.update(num_hidden_layers=10**50))
            self.refuses(65, "num_hidden_layers", "run", path, "-p", "x")

    def test_more_tokens_than_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.changed(folder, "tokenizer.json", lambda tokenizer: tokenizer["added_tokens"].append(
                dict(tokenizer["added_tokens"][0], id=1024, content="<|extra|>")))
            self.refuses(65, ["1025", "1024"], "run", path, "-p", "x")

    def test_a_file_that_shrinks_while_in_use(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            shutil.copy(ZOO / "llama/q4_0.gguf", path)
            with subprocess.Popen([VERNIER, "chat", path, "-n", "2", "--temp", "0"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                process.stdin.write("Hello\n")
                process.stdin.flush()
                process.stdout.readline()  # the first answer: the model is loaded
                os.truncate(path, 4096)
                out, err = process.communicate("Hello\n/quit\n", timeout=30)
                self.assertEqual(process.returncode, 0, (out, err))
                self.assertIn("truncated", err)


class Settings(Case):
    def test_flag_beats_environment_beats_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write("max-tokens = 3\ntemp = 0\n")
            file.flush()

            def generated(*words, env=None):
                code, out, err = run("run", "demo", "-p", "And", "--ignore-eos", "--json", *words, env=env)
                self.assertEqual(code, 0, err)
                return len(json.loads(out)["ids"])

            self.assertEqual(generated("--config", file.name), 3)
            self.assertEqual(generated("--config", file.name, env={"VERNIER_MAX_TOKENS": "4"}), 4)
            self.assertEqual(generated("--config", file.name, "-n", "5", env={"VERNIER_MAX_TOKENS": "4"}), 5)
            self.assertEqual(generated(env={"VERNIER_CONFIG": file.name}), 3)

    def test_bad_settings_are_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write("no-such-key = 3\n")
            file.flush()
            self.refuses(64, "no-such-key", "run", "demo", "-p", "x", "--config", file.name)
        self.refuses(66, "missing.ini", "run", "demo", "-p", "x", "--config", "missing.ini")
        self.refuses(64, "", "run", "demo", "-p", "x", env={"VERNIER_MAX_TOKENS": "many"})

    def test_models_are_found_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "mine.gguf").symlink_to(ZOO / "llama/q4_0.gguf")
            code, out, err = run("inspect", "mine", "--json", env={"VERNIER_MODELS": folder})
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(out)["architecture"], "llama")


class Inspect(Case):
    def test_json_has_the_documented_fields(self):
        code, out, err = run("inspect", ZOO / "llama/nvfp4", "--json", "--fit", "--tensors", "--check")
        self.assertEqual(code, 0, err)
        found = json.loads(out)
        self.assertEqual((found["architecture"], found["container"], found["dialect"]), ("llama", "safetensors", "modelopt"))
        self.assertEqual(found["tensors"]["total"], len(found["tensor_list"]))
        self.assertEqual(found["tensors"]["refused"], 0)
        self.assertIn("nvfp4", found["formats"])
        self.assertTrue(found["fit"]["fits"])
        self.assertIsNone(found["experts"])

    def test_cache_scales_are_used_by_an_fp8_cache_and_said_to_be(self):
        header = json.dumps({"model.layers.%d.self_attn.%s_proj.%s_scale" % (i, kind, kind):
                             {"dtype": "F32", "shape": [], "data_offsets": [8 * i + at, 8 * i + at + 4]}
                             for i in range(4) for at, kind in ((0, "k"), (4, "v"))}).encode()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model"
            shutil.copytree(ZOO / "llama/nvfp4", folder)
            (folder / "scales.safetensors").write_bytes(
                struct.pack("<Q", len(header)) + header + struct.pack("<8f", *[0.05] * 8))
            for kv, reasons, words in (("bf16", {"kv-scale": 8}, "8 scales of a KV cache are read past"),
                                       ("fp8", {}, "8 of them scale the fp8 KV cache")):
                code, out, err = run("inspect", folder, "--kv", kv, "--json")
                self.assertEqual(code, 0, err)
                found = json.loads(out)["tensors"]
                self.assertEqual({k: v for k, v in found["ignored"].items() if k == "kv-scale"}, reasons)
                self.assertEqual(found["total"], found["used"] + sum(found["ignored"].values()))
                self.assertIn(words, run("inspect", folder, "--kv", kv)[1])
            code, _, err = run("run", folder, "--ids", "1,2,3", "-n", 1, "-v", "--kv", "fp8")
            self.assertEqual(code, 0, err)
            self.assertIn("fp8 caches for 8192 tokens (scales of 4 layers from the file)", err)
        _, _, err = run("run", "demo", "--ids", "1,2,3", "-n", 1, "-v", "--kv", "fp8")
        self.assertIn("(scale 1: the file holds none)", err)
        self.refuses(64, "unknown --kv 'fp9'", "inspect", "demo", "--kv", "fp9")

    def test_explain_tells_ten_steps(self):
        code, out, _ = run("inspect", "demo", "--explain")
        self.assertEqual(code, 0)
        self.assertEqual([line.split(".")[0].strip() for line in out.splitlines()], [str(i) for i in range(1, 11)])

    def test_look_alikes_and_broken_files(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for content, words in ((b"", "empty"), (b"GGU", "3 of"), (b"version https://git-lfs.github.com/spec/v1\n" * 3, "LFS"),
                                   (b"<!DOCTYPE html><html></html>" * 4, "HTML"), (b"PK\x03\x04" + b"x" * 64, "zip"),
                                   (b"GGUF" + struct.pack("<I", 9) + b"\0" * 64, "version 9"),
                                   (b"GGUF" + struct.pack(">I", 3) + b"\0" * 64, "big-endian")):
                path = folder / "model.gguf"
                path.write_bytes(content)
                self.refuses(65, words, "inspect", path)
                self.refuses(65, words, "run", path, "-p", "x")
            os.mkfifo(folder / "pipe.gguf")
            self.refuses(65, "not a regular file", "inspect", folder / "pipe.gguf")
            whole = (ZOO / "llama/q4_0.gguf").read_bytes()
            (folder / "cut.gguf").write_bytes(whole[:-1000])
            self.refuses(65, "cut.gguf", "inspect", folder / "cut.gguf")

    def test_names_with_escapes_are_shown_escaped(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "evil\x1b[31m.gguf"
            path.write_bytes(b"GGUF")
            code, _, err = run("inspect", path)
            self.assertEqual(code, 65)
            self.assertNotIn("\x1b", err)


class Verify(Case):
    def test_agrees_and_differs(self):
        expected = ZOO / "llama/nvfp4.expected.json"
        code, out, err = run("verify", "demo", "--expected", expected, "--precision", "f32", "--json")
        self.assertEqual(code, 0, err)
        found = json.loads(out)
        self.assertEqual((found["compared"], found["equal"]), (768, 768))
        self.assertLess(found["mean_kl"], 1e-6)
        code, out, _ = run("verify", ZOO / "llama/q4_0.gguf", "--expected", expected, "--precision", "f32")
        self.assertEqual(code, 1)
        self.assertIn("DIFFERS", out)

    def test_bad_references(self):
        self.refuses(66, "no such file", "verify", "demo", "--expected", "missing.json")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"prompts":[{"prompt_ids":[1],"greedy_ids":[2],"top2_margin":[]}]}')
            file.flush()
            self.refuses(65, "top2_margin", "verify", "demo", "--expected", file.name)


class Perplexity(Case):
    TEXT = "In the beginning was the word, and the word was with the others. " * 40

    def windows(self, *words, **options):
        code, out, err = run("perplexity", *words, "--json", **options)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_is_that_of_the_reference_logits(self):
        """Against double precision from the logits of an independent implementation."""
        for model in ("llama/nvfp4", "qwen3moe/nvfp4"):
            prompt = json.loads((ZOO / f"{model}.expected.json").read_text())["prompts"][0]
            ids = (prompt["prompt_ids"] + prompt["greedy_ids"])[:64]
            data = (ZOO / f"{model}.expected.safetensors").read_bytes()
            size = struct.unpack_from("<Q", data)[0]
            entry = json.loads(data[8:8 + size])["logits"]
            rows, vocab = entry["shape"]
            logits = struct.unpack_from(f"<{rows * vocab}f", data, 8 + size + entry["data_offsets"][0])
            nll = []
            for row in range(32, 63):
                line = logits[row * vocab:(row + 1) * vocab]
                top = max(line)
                nll.append(math.log(math.fsum(math.exp(x - top) for x in line)) + top - line[ids[row + 1]])
            mean = math.fsum(nll) / len(nll)
            variance = math.fsum((x - mean) ** 2 for x in nll) / len(nll)
            found = self.windows(ZOO / model, "--ids", ",".join(map(str, ids)), "--ctx", 64, "--precision", "f32")
            self.assertEqual((found["windows"], found["tokens"], found["ctx"]), (1, 31, 64))
            self.assertAlmostEqual(found["mean_nll"], mean, delta=2e-5)
            self.assertAlmostEqual(found["ppl_error"] / found["ppl"], math.sqrt(variance / (len(nll) - 1)), delta=2e-5)

    def test_windows_begin_with_bos_and_the_rest_is_left(self):
        ids = json.loads(run("tokenize", "demo", "--jsonl", stdin=json.dumps(self.TEXT) + "\n")[1])
        windows = [[ids[0]] + ids[at + 1:at + 32] for at in range(0, len(ids) - 31, 32)]
        found = self.windows("demo", "-f", "-", "--ctx", 32, stdin=self.TEXT)
        self.assertEqual((found["windows"], found["tokens"]), (len(windows), 15 * len(windows)))
        by_ids = self.windows("demo", "--ctx", 32, "--ids", ",".join(str(i) for window in windows for i in window))
        self.assertEqual(found["ppl"], by_ids["ppl"])
        few = self.windows("demo", "-f", "-", "--ctx", 32, "--chunks", 2, stdin=self.TEXT)
        self.assertEqual(few["windows"], 2)

    def test_comparison_with_a_base(self):
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "base.vnl"
            text = Path(folder) / "text.txt"
            text.write_text(self.TEXT)
            words = ("--ctx", 64, "--precision", "f32")
            saved = self.windows("demo", "-f", text, "--save-logits", base, *words)
            self.assertEqual(sorted(os.listdir(folder)), ["base.vnl", "text.txt"])
            for more in ((), ("-f", text), ("--device", "reference")):
                same = self.windows("demo", "--kl-against", base, *words, *more)
                self.assertAlmostEqual(same["ppl"], saved["ppl"], delta=1e-4 * saved["ppl"])
                self.assertLess(same["against"]["max_kl"], 1e-7)
                self.assertEqual(same["against"]["same_top"], 1.0)
                self.assertLess(abs(same["against"]["log_ratio"]), 1e-6)
            other = self.windows(ZOO / "llama/q4_0.gguf", "--kl-against", base)
            self.assertGreater(other["against"]["mean_kl"], 1e-3)
            self.assertLessEqual(other["against"]["median_kl"], other["against"]["kl_99_9"])
            self.assertLessEqual(other["against"]["kl_99_9"], other["against"]["max_kl"])
            self.assertAlmostEqual(other["against"]["delta_ppl"], other["ppl"] - other["against"]["base_ppl"], places=6)
            code, out, err = run("perplexity", ZOO / "llama/q4_0.gguf", "--kl-against", base, "-q")
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, r"PPL = [0-9.]+ \+/- [0-9.]+\n$")
            self.refuses(64, "windows of 64 tokens", "perplexity", "demo", "--kl-against", base, "-c", "32", "-q")
            self.refuses(65, "other tokens", "perplexity", "demo", "--kl-against", base, "-f", "-", "-q", stdin="no " * 400)
            self.refuses(65, "vocabulary", "perplexity", ZOO / "qwen3/mixed.gguf", "--kl-against", base, "-q")
            base.write_bytes(base.read_bytes()[:-1])
            self.refuses(65, ["base.vnl", "bytes, the file has"], "perplexity", "demo", "--kl-against", base, "-q")

    def test_interrupt_gives_the_estimate_so_far(self):
        with tempfile.TemporaryDirectory() as folder:
            text, base = Path(folder) / "text.txt", Path(folder) / "base.vnl"
            text.write_text(self.TEXT * 60)
            with subprocess.Popen([VERNIER, "perplexity", "demo", "-f", text, "--device", "reference", "--json", "-c", "128",
                                   "--save-logits", base],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                process.stderr.readline()  # a window is done
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, err)
            found = json.loads(out)
            self.assertTrue(found["interrupted"])
            again = self.windows("demo", "--kl-against", base)
            self.assertEqual(again["windows"], found["windows"])

    def test_refusals(self):
        self.refuses(64, "-f", "perplexity", "demo")
        self.refuses(64, "one of -f and --ids", "perplexity", "demo", "-f", "x", "--ids", "1")
        self.refuses(64, ["3 tokens", "window 512"], "perplexity", "demo", "--ids", "1,2,3")
        self.refuses(64, "at least 4", "perplexity", "demo", "--ids", "1,2,3", "--ctx", "3")
        self.refuses(64, "prompt[2]", "perplexity", "demo", "--ids", "1,2,1024,4", "--ctx", "4")
        self.refuses(64, "--chunks", "perplexity", "demo", "--ids", "1,2,3,4", "--chunks", "-1")
        self.refuses(65, "empty", "perplexity", "demo", "-f", "-")
        self.refuses(65, "offset 3", "perplexity", "demo", "-f", "-", stdin=b"abc\xff")
        self.refuses(65, "byte 0x00", "perplexity", "demo", "-f", VERNIER)
        self.refuses(66, "no-such", "perplexity", "demo", "-f", "no-such")
        self.refuses(66, "no-such", "perplexity", "demo", "--kl-against", "no-such")
        self.refuses(65, "VNLOGITS", "perplexity", "demo", "--kl-against", ZOO / "llama/q4_0.gguf")
        self.refuses(74, "cannot be written", "perplexity", "demo", "-f", "-", "-q", "-c", "32", "--save-logits",
                     "/no/such/folder/x", stdin=self.TEXT)


class Text(Case):
    def test_jsonl_answers_every_line_in_order(self):
        lines = ['"In the"', "{broken", '{"text":"In the","add_special":false}', '{"base64":"SW4gdGhl"}', '{"text":1}',
                 '{"text":"x","nonsense":1}', "[1,2]"]
        code, out, err = run("tokenize", "demo", "--jsonl", stdin="\n".join(lines) + "\n")
        self.assertEqual(code, 0, err)
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(answers), len(lines))
        self.assertEqual(answers[0], answers[3])
        self.assertEqual(answers[0][1:], answers[2])
        for i in (1, 4, 5, 6):
            self.assertEqual(list(answers[i]), ["error"], answers[i])

    def test_round_trip(self):
        text = "The quick brown fox \u00e9\u4e2d\U0001f600\n  jumps."
        for model in ("demo", ZOO / "qwen3/fp8-block"):
            ids = json.loads(run("tokenize", model, "--no-special", "--jsonl", stdin=json.dumps(text) + "\n")[1])
            back = json.loads(run("detokenize", model, "--jsonl", stdin=json.dumps({"ids": ids, "skip_special": True}) + "\n")[1])
            self.assertEqual(back, text)
        self.refuses(64, "ids[0]", "detokenize", "demo", "--ids", "1024")

    def test_bare_tokenizer_file(self):
        code, out, err = run("tokenize", ZOO / "llama/nvfp4/tokenizer.json", "-p", "In the", "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(out, run("tokenize", ZOO / "llama/nvfp4", "-p", "In the", "--json")[1])

    def test_templates(self):
        request = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
        code, out, err = run("template", "demo", stdin=json.dumps(request))
        self.assertEqual(code, 0, err)
        self.assertIn("Hi", out)
        self.assertEqual(out, run("template", "demo", "-p", "Hi")[1])
        with tempfile.TemporaryDirectory() as folder:
            bad = Path(folder) / "bad.jinja"
            bad.write_text("line one\n{% if %}")
            self.refuses(65, "line 2", "template", bad, "-p", "x")
            raising = Path(folder) / "raise.jinja"
            raising.write_text("{{ raise_exception('no such role') }}")
            self.refuses(65, "no such role", "template", raising, "-p", "x")


class Chat(Case):
    def test_a_conversation(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "talk.json"
            lines = ["Hello", "/regen", "/stats", f"/save {saved}", "/reset", f"/load {saved}", "/help", "/quit", "never"]
            code, out, err = run("chat", "demo", "-n", "4", "--temp", "0", stdin="\n".join(lines) + "\n")
            self.assertEqual(code, 0, err)
            talk = json.loads(saved.read_text())
            self.assertEqual([message["role"] for message in talk], ["user", "assistant"])
            self.assertIn("2 messages", out)
            self.assertIn("/regen", out)


class Odds(Case):
    def test_help_of_every_verb(self):
        top = run("--help")
        self.assertEqual(top, run("help"))
        self.assertEqual(run("run", "--help"), run("help", "run"))
        self.assertEqual(top[0], 0)
        for verb in ("run", "chat", "inspect", "verify", "perplexity", "bench", "tokenize", "detokenize", "template", "devices", "completion", "pull"):
            self.assertIn(verb, top[1])
            code, out, _ = run(verb, "--help")
            self.assertEqual(code, 0)
            self.assertIn("--config", out)
        self.assertRegex(run("--version")[1], r"^\d+\.\d+\.\d+\n$")

    def test_routing_is_recorded_and_replayed(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.jsonl"
            code, _, err = run("run", ZOO / "qwen3moe/nvfp4", "--raw", "-p", "The", "-n", "6", "--temp", "0",
                               "--ignore-eos", "--routing-trace", trace)
            self.assertEqual(code, 0, err)
            code, out, err = run("bench", "experts", "--trace", trace, "--jsonl", "--caches", "50%,100%")
            self.assertEqual(code, 0, err)
            replays = [json.loads(line) for line in out.splitlines()]
            self.assertEqual([replay["policy"] for replay in replays], ["lru"] * 2 + ["lfu"] * 2 + ["fifo"] * 2)
            for half, full in zip(replays[::2], replays[1::2]):
                self.assertEqual(full["uses"], half["uses"])
                self.assertLessEqual(half["hits"], full["hits"])
                self.assertGreaterEqual(full["hits"], full["uses"] - full["experts"])
            self.refuses(64, "policy", "bench", "experts", "--trace", trace, "--policies", "best")
            self.refuses(64, "--expert-cache", "bench", "experts", "--trace", trace, "--caches", "0%")
            trace.write_text("no trace\n")
            self.refuses(65, "line 1", "bench", "experts", "--trace", trace)
            self.refuses(66, "no-such", "bench", "experts", "--trace", Path(folder) / "no-such")
        self.refuses(64, "--trace", "bench", "experts")
        self.refuses(74, "routing trace", "run", ZOO / "qwen3moe/nvfp4", "-p", "x", "--routing-trace", "/no/such/file")

    def test_devices(self):
        found = json.loads(run("devices", "--json")[1])
        names = [device["name"] for device in found["devices"]]
        self.assertIn("cpu", names)
        self.assertIn("cuda", names)
        self.assertEqual(found["instruction_sets"][-1], "portable")
        self.assertTrue(all(device["available"] or device["reason"] for device in found["devices"]))

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            code, out, _ = run("completion", shell)
            self.assertEqual(code, 0)
            self.assertIn("--max-tokens" if shell != "fish" else "max-tokens", out)
        self.refuses(64, "tcsh", "completion", "tcsh")
        script = run("completion", "bash")[1] + 'COMP_WORDS=(vernier ru); COMP_CWORD=1; _vernier; echo "${COMPREPLY[@]}"'
        self.assertEqual(subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout, "run\n")

    def test_pull_names_what_it_knows(self):
        self.refuses(64, "smollm2-135m", "pull", "gpt-5")

    def test_closed_output_is_an_error_not_a_signal(self):
        with subprocess.Popen([VERNIER, "run", "demo", "-p", "And", "-n", "64", "--ignore-eos"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            process.stderr.read()
            self.assertEqual(process.wait(timeout=30), 74)


if __name__ == "__main__":
    unittest.main(argv=["cli_test"])
