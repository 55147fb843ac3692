"""The table of GPU targets: what was measured of each (bench/results/h200-*.json), and what limits it (bench/profile_cuda.py).

bench/cuda_table.py writes it. What was tried, and what a profile can't say, is judgement and stands in bench/bounds.json.
"""

import json

import profile_cuda
from cpu_table import ROOT, results
from cuda_results import (PCIE_GB_S, PEER_CPU_EXPERTS, PEER_CPU_ONLY, PEER_DECODE, PEER_DEEP, PEER_HALF_LAYERS, PEER_PREFILL,
                          PEER_STEP_MS, is_exact, name_of, rate, runs, step_ms, title, words_after)

MARKER = "bench/cuda_targets.py"
LLAMA, QWEN3, OSS, OSS_LARGE, QWEN35 = ("llama-3.1-8b nvfp4", "qwen3-30b-a3b nvfp4", "gpt-oss-20b", "gpt-oss-120b",
                                        "qwen35-35b-a3b nvfp4")
SQUARE = "8192x8192"
SMALL_EXPERTS, LARGE_EXPERTS = "8of128 2048x768", "4of128 2880x2880"


class Row:
    """What a target's figures are, which of them are good enough, and the commands that they come from."""

    def __init__(self):
        self.parts = []
        self.verdicts = []
        self.commands = []

    def part(self, label, text, is_met=None):
        """A figure; None as `text` is one that wasn't measured."""
        self.parts.append(f"{label}: {text if text is not None else 'not measured'}")
        self.verdicts.append(bool(is_met) if text is not None else False)

    def find(self, group, of_command, of_row, prefix="h200-"):
        """The first result of a group for which both are true."""
        for command, rows in runs(group, prefix):
            row = next((row for row in rows if of_row(row)), None) if of_command(command) else None
            if row:
                stated = command.split(" --repeat")[0]
                if stated not in self.commands:
                    self.commands.append(stated)
                return row
        return None

    def kernel(self, op, shape, tokens=1, form=None, group="linears", exact=False):
        return self.find(group, lambda command: is_exact(command) == exact,
                         lambda row: (row.get("op"), row.get("shape"), row.get("tokens")) == (op, shape, tokens)
                         and form in (None, row["format"]))

    def model(self, name, test, group="models", depth=0, flags=""):
        return self.find(group, lambda command: "--synthetic" in command and name_of(command) == name and flags in command,
                         lambda row: row["test"] == test and row["depth"] == depth)

    # Figures with their targets. A row that is None wasn't measured.

    def percent(self, label, row, least):
        value = row and row["share_of_limit"]
        self.part(label, f"{value * 100:.0f} %" if value else None, value and value * 100 >= least)

    def ratio(self, label, value, least=None, most=None):
        is_met = value and (least is None or value >= least) and (most is None or value <= most)
        self.part(label, f"{value:.2f}x" if value else None, is_met)

    def text(self):
        measured = "; ".join(self.parts)
        if all("not measured" in part for part in self.parts):
            return "not measured"
        return measured + (". **Met**" if all(self.verdicts) else ". **Met in part**" if any(self.verdicts) else ". **Not met**")


def seconds(row):
    return row["seconds"]["median"] if row else None


def quotient(a, b):
    return a / b if a and b else None


def cublas(shape, tokens):
    """Seconds of cuBLAS in bf16 (bench/cuda_peers.py)."""
    for _, rows in runs("peers"):
        for row in rows:
            if (row.get("library"), row["op"], row["shape"], row["rows"]) == ("cuBLAS bf16", "linear", shape, tokens):
                return row["us"] * 1e-6
    return None


def g1(row):
    for form in ("nvfp4", "mxfp4"):
        chains = [(chain, row.kernel(f"chain {chain}", SQUARE, 1, form)) for chain in ("apart", "overlap", "norm")]
        for (chain, found), least in zip(chains, (65, 78, 66)):
            row.percent(f"{form} {chain}", found, least)
        row.ratio(f"{form} apart, cuBLAS by it", quotient(cublas(SQUARE, 1), seconds(chains[0][1])), 2.8)


def g2(row):
    for form in ("nvfp4", "mxfp4"):
        row.percent(f"{form} 66 MB", row.kernel("chain overlap", "28672x4096", 1, form), 80)
        row.percent("264 MB", row.kernel("chain overlap", "57344x8192", 1, form), 90)


def g3(row):
    for form in ("nvfp4", "mxfp4"):
        one = seconds(row.kernel("chain overlap", SQUARE, 1, form))
        for tokens, most in ((2, 1.05), (4, 1.05), (8, 1.05), (16, 1.2)):
            row.ratio(f"{form} {tokens} by 1", quotient(seconds(row.kernel("chain overlap", SQUARE, tokens, form)), one), most=most)
        many = seconds(row.kernel("chain overlap", SQUARE, 16, form))
        row.ratio("16, cuBLAS by it", quotient(cublas(SQUARE, 16), many), 2.4)


def by_cublas(row, form, pairs, exact=False):
    for tokens, least in pairs:
        op = "chain overlap" if exact else "linear"
        found = row.kernel(op, SQUARE, tokens, form, exact=exact)
        row.ratio(f"{form} {tokens} tokens, cuBLAS by it", quotient(cublas(SQUARE, tokens), seconds(found)), least)


def g4(row):
    for form in ("nvfp4", "mxfp4"):
        by_cublas(row, form, ((64, 1.5), (128, 1.2), (256, 1.0)))


def g5(row):
    for form in ("nvfp4", "mxfp4"):
        by_cublas(row, form, ((1024, 0.95), (4096, 0.95)))


def g6(row):
    plain = row.kernel("chain apart", SQUARE, 1, "fp8-block")
    row.percent("apart", plain, 82)
    row.percent("overlap", row.kernel("chain overlap", SQUARE, 1, "fp8-block"), 90)
    row.ratio("apart, cuBLAS by it", quotient(cublas(SQUARE, 1), seconds(plain)), 1.95)
    by_cublas(row, "fp8-block", ((4096, 0.95),))


def g7(row):
    for tokens, most in ((1, 1.03), (2, 1.06), (4, 1.3)):
        exact, rounded = (seconds(row.kernel("chain overlap", SQUARE, tokens, "nvfp4", exact=e)) for e in (True, False))
        row.ratio(f"{tokens} by bf16", quotient(exact, rounded), most=most)
    by_cublas(row, "nvfp4", ((4096, 0.30),), exact=True)


def g8(row):
    for shape, least in ((SMALL_EXPERTS, 45), (LARGE_EXPERTS, 60)):
        for form in ("nvfp4", "mxfp4"):
            row.percent(f"{shape} {form}", row.kernel("mixture", shape, 1, form, "experts"), least)


def g9(row):
    for shape in (SMALL_EXPERTS, LARGE_EXPERTS):
        for form in ("nvfp4", "mxfp4"):
            for tokens in (16, 64, 128, 256):
                row.percent(f"{shape} {form} {tokens}", row.kernel("experts", shape, tokens, form, "experts"), 75)


def bandwidth(row, label, found, least):
    value = found and found["gb_s"] / 1000.0
    row.part(label, f"{value:.2f} TB/s" if value else None, value and value >= least)


def attention(row, shape, tokens, op="attention"):
    return row.kernel(op, shape, tokens, group="operations")


def g10(row):
    bandwidth(row, "32 x 4096", attention(row, "32 x 4096", 32), 4.0)
    short = seconds(attention(row, "1 x 1024", 1))
    row.part("1 x 1024", f"{short * 1e6:.1f} us" if short else None, short and short <= 6.5e-6)
    bandwidth(row, "1 x 32768", attention(row, "1 x 32768", 1), 3.5)


def g11(row):
    for tokens in (8192, 4096):
        found = attention(row, str(tokens), tokens, "prefill")
        rate_of = found and found["gflop_s"] / 1000.0
        row.part(f"{tokens} tokens", f"{rate_of:.0f} TFLOP/s" if rate_of else None, rate_of and rate_of >= 600)


def g12(row):
    prompt = seconds(attention(row, "1 x 32768", 32768, "delta-net"))
    row.part("1 x 32768", f"{prompt * 1e3:.2f} ms" if prompt else None, prompt and prompt <= 1e-3)
    for sequences in (32, 128, 512):
        bandwidth(row, f"{sequences} x 1", attention(row, f"{sequences} x 1", sequences, "delta-net"), 3.8)


def layers_of(name):
    config = json.loads((ROOT / "models" / "shapes.json").read_text())[name.split()[0]]["config"]
    return config.get("text_config", config)["num_hidden_layers"]


def g13(row):
    for name in (LLAMA, QWEN3, OSS, QWEN35):
        for full, cut, label in (("tg128", "tg16", "1 sequence"), ("tg32x8", "tg16x8", "8")):
            few = row.model(name, cut, "launches")
            all_layers = row.model(name, full)
            counts = [found and found.get("kernels_a_step") for found in (all_layers, few)]
            each = (counts[0] - counts[1]) / (layers_of(name) - 4) if all(counts) else None
            row.part(f"{title(name)}, {label}", f"{each:.1f}" if each else None, each and each <= 5)
    norm = seconds(row.kernel("norm", "4096", 1, group="operations"))
    row.part("a norm of one token and the way to the next", f"{norm * 1e6:.1f} us" if norm else None, norm and norm <= 1.2e-6)


def decode(row, name, least_percent, least_ratio=None, test="tg128"):
    found = row.model(name, test)
    row.percent(title(name), found, least_percent)
    if least_ratio:
        row.ratio("by llama.cpp", quotient(rate(found), PEER_DECODE[name]), least_ratio)


def g14(row):
    decode(row, OSS, 65, 2.6)
    decode(row, OSS_LARGE, 65, 2.6)


def g15(row):
    decode(row, LLAMA, 65, 2.0)
    decode(row, "llama-3.1-8b fp8-block", 78)
    decode(row, "llama-3.1-8b bf16", 90)


def g16(row):
    decode(row, QWEN3, 38, 3.0)
    decode(row, "qwen3-30b-a3b fp8-block", 55)
    decode(row, QWEN35, 38, 3.0)


def g17(row):
    for name, least in ((LLAMA, 2.0), (QWEN3, 3.0), (QWEN35, 3.0)):
        deep = row.model(name, "tg32", "depth", depth=32000)
        row.ratio(f"{title(name)}, by llama.cpp", quotient(rate(deep), PEER_DEEP[name]), least)


def g18(row):
    for name, least in ((LLAMA, 3.5), (QWEN3, 4.0), (OSS, 4.0), (QWEN35, 4.0)):
        row.ratio(f"{title(name)} 2048, by llama.cpp", quotient(rate(row.model(name, "pp2048")), PEER_PREFILL[name]), least)
        # llama.cpp's rate at 8192 wasn't measured: it is compared with that at 2048.
        row.ratio("8192", quotient(rate(row.model(name, "pp8192", "depth")), PEER_PREFILL[name]), least)


def g19(row):
    for sequences, test, least in ((8, "tg32x8", 3.0), (32, "tg32x32", 5.0), (128, "tg16x128", 5.0)):
        found = row.model(QWEN3, test)
        ours = found and step_ms(found, sequences)
        row.ratio(f"{sequences} sequences, by llama.cpp", quotient(PEER_STEP_MS[QWEN3][sequences], ours), least)


def g20(row):
    for form in ("nvfp4", "fp8-block", "bf16"):
        for tokens in (1, 16):
            own = seconds(row.kernel("linear", SQUARE, tokens, form))
            row.ratio(f"{form} {tokens}, of sm_90a", quotient(own, seconds(row.kernel("linear", SQUARE, tokens, form, "sm80"))), 0.8)
        many = seconds(row.kernel("linear", SQUARE, 4096, form, "sm80"))
        row.ratio("4096, cuBLAS by it", quotient(cublas(SQUARE, 4096), many), 0.65)


def g21(row):
    row.part("price", "none, there is no other mode: no kernel's order of sums depends on other rows", True)


def h1(row):
    for form in ("mxfp4", "nvfp4"):
        for shape in (SMALL_EXPERTS, "4of32 2880x2880"):
            row.percent(f"{form} {shape}", row.kernel("experts", shape, 1, form, "host"), 85)


def placed(row, name, mode, test, cache="--expert-cache 50%"):
    return row.model(name, test, "placement", flags=f"--experts {mode} {cache}".strip())


def h2(row):
    for name in (QWEN3, OSS, QWEN35, OSS_LARGE):
        found = placed(row, name, "cpu", "tg64", "")
        row.ratio(f"{title(name)}, by llama.cpp", quotient(rate(found), PEER_CPU_EXPERTS[name][0]), 2.5)


def h3(row):
    for name in (QWEN3, OSS, QWEN35):
        ours, offload = (rate(placed(row, name, mode, "tg64")) for mode in ("hybrid", "offload"))
        alone = rate(placed(row, name, "cpu", "tg64", ""))
        if name in PEER_HALF_LAYERS:
            row.ratio(f"{title(name)}, by llama.cpp", quotient(ours, PEER_HALF_LAYERS[name]), 2.5)
        row.ratio(f"{title(name)}, by the better of offload and cpu", quotient(ours, max(offload or 0, alone or 0)), 0.97)
        windows = [window(placed(row, name, *lane)) for lane in (("hybrid", "tg300"), ("offload", "tg300"), ("cpu", "tg300", ""))]
        row.ratio(f"{title(name)}, slowest 100 tokens by that of the better lane", quotient(windows[0], max(windows[1:])), 0.97)


def window(found):
    return (found or {}).get("slowest_100_steps_tok_s", 0)


def touched(row, label, found, least):
    """What moved and what lay in slots, by time: a bus that moved all of it would need that rate."""
    experts = (found or {}).get("experts", {})
    value = experts.get("moved") and experts["moved_gb_s"] * (1 + experts["found"] / experts["moved"])
    row.part(label, f"{value:.0f} GB/s of touched experts ({value / PCIE_GB_S:.2f})" if value else None, value and value >= least * PCIE_GB_S)


def moved(row, label, found, least):
    value = found and found.get("experts", {}).get("moved_gb_s")
    row.part(label, f"{value:.0f} GB/s ({value / PCIE_GB_S:.2f})" if value else None, value and value >= least * PCIE_GB_S)


def h4(row):
    for name in (OSS, QWEN35):
        moved(row, title(name), placed(row, name, "offload", "tg64"), 0.85)


def h5(row):
    for name in (OSS, QWEN35):
        for test in ("pp100", "pp2048"):
            touched(row, f"{title(name)} {test}", placed(row, name, "offload", test), 0.9)
    for name in (QWEN3, OSS, QWEN35, OSS_LARGE):
        found = placed(row, name, "cpu", "pp2048", "")
        row.ratio(f"{title(name)}, none in slots, by llama.cpp", quotient(rate(found), PEER_CPU_EXPERTS[name][1]), 1.3)


def h6(row):
    group, prefix = ("host", "h200-") if runs("host") else ("h6", "")
    for name in (LLAMA, OSS):
        for test, peer, least, isa in (("tg16", PEER_CPU_ONLY[name][0], 2.2, None), ("pp512", PEER_CPU_ONLY[name][1], 10.0, "amx")):
            found = row.find(group, lambda c: "--synthetic" in c and name_of(c) == name and (words_after(c, "--cpu-isa") == "amx") == (isa == "amx"),
                             lambda r: r["test"] == test, prefix)
            row.ratio(f"{title(name)} {test}, by llama.cpp", quotient(rate(found), peer), least)


# number, what, target, its figures, cases of the profile that say what limits it
TARGETS = [
    ("G1", "4 bits, one token, 8192x8192: apart, overlap, norm", ">= 65, 78, 66 %; 2.8x cuBLAS", g1, ["nvfp4 1", "mxfp4 1"]),
    ("G2", "66 and 264 MB, overlap", ">= 80, 90 %", g2, ["nvfp4 1 large"]),
    ("G3", "2, 4, 8, 16 tokens by one", "<= 1.05x, 16: 1.2x; 2.4x cuBLAS", g3, ["nvfp4 8", "nvfp4 16"]),
    ("G4", "64, 128, 256 tokens", ">= 1.5x, 1.2x, 1.0x cuBLAS", g4, ["nvfp4 64", "nvfp4 128", "nvfp4 256"]),
    ("G5", "1024 and 4096 tokens", ">= 0.95x cuBLAS", g5, ["nvfp4 1024", "nvfp4 4096"]),
    ("G6", "block FP8: one token apart, overlap; 4096", ">= 82, 90 %, 1.95x; 0.95x cuBLAS", g6, ["fp8 1", "fp8 4096"]),
    ("G7", "`--precision f32`: 1, 2, 4; 4096 tokens", "<= 1.03x, 1.06x, 1.3x of bf16; >= 0.30x cuBLAS", g7, ["f32 1", "f32 4096"]),
    ("G8", "router and experts of one token, other ones each time", ">= 45 % of 8 of 128, 60 % of 4 of 128", g8, ["mixture small", "mixture large"]),
    ("G9", "experts of 16 to 256 tokens", ">= 75 %", g9, ["experts 16", "experts 128"]),
    ("G10", "decode attention", ">= 4.0 TB/s; <= 6.5 us; >= 3.5 TB/s", g10, ["attention 32 x 4096", "attention 1 x 1024", "attention 1 x 32768"]),
    ("G11", "attention of a prompt", ">= 600 TFLOP/s", g11, ["prefill 8192"]),
    ("G12", "gated delta net", "<= 1.0 ms; >= 3.8 TB/s", g12, ["delta-net 1 x 32768", "delta-net 128 x 1"]),
    ("G13", "kernels a layer of a decode step; time lost at each", "<= 5; <= 1.2 us", g13, ["step llama", "step qwen3"]),
    ("G14", "gpt-oss, one sequence", ">= 65 %; 2.6x llama.cpp", g14, ["step gpt-oss", "mixture large"]),
    ("G15", "Llama-3.1-8B, one sequence", ">= 65, 78, 90 %; NVFP4 2.0x", g15, ["step llama"]),
    ("G16", "Qwen3-30B, Qwen3.5-35B, one sequence", ">= 38, 55, 38 %; 3x", g16, ["step qwen3", "step qwen35"]),
    ("G17", "at depth 32000", ">= 2x, 3x, 3x llama.cpp", g17, ["attention 1 x 32768"]),
    ("G18", "prompts of 2048 and 8192", ">= 3.5x; mixtures 4x llama.cpp", g18, ["prompt llama", "prompt qwen3", "nvfp4 4096"]),
    ("G19", "steps of 8, 32, 128 sequences, Qwen3-30B", ">= 3x, 5x, 5x llama.cpp", g19, ["step qwen3 8", "step qwen3 32", "experts 16"]),
    ("G20", "the portable path (sm_80) on this card", ">= 0.8x of sm_90a; 0.65x cuBLAS", g20, []),
    ("G21", "price of batch invariance", "<= 5 %", g21, []),
    ("H1", "experts on 16 cores, one token", ">= 85 %", h1, []),
    ("H2", "experts on the CPU", ">= 2.5x llama.cpp", h2, []),
    ("H3", "`hybrid`, half of the experts in slots", ">= 2.5x llama.cpp with half of its layers there; >= 0.97x of the better lane", h3, []),
    ("H4", "`offload`, half in slots: bytes moved by the time of steps", ">= 0.85 of PCIe (55.5 GB/s)", h4, []),
    ("H5", "prompts, experts streamed", ">= 0.9 of PCIe; 1.3x llama.cpp", h5, []),
    ("H6", "16 cores alone: generation, prompts", ">= 2.2x, 10x llama.cpp", h6, []),
]


def table():
    bounds = json.loads((ROOT / "bench" / "bounds.json").read_text())
    lines = ["| # | what | target | measured | command | what limits it (by the profile), what was tried |",
             "| --- | --- | --- | --- | --- | --- |"]
    for number, what, target, fill, cases in TARGETS:
        row = Row()
        fill(row)
        commands = "<br>".join(f"`{command}`" for command in row.commands) or "-"
        words = [profile_cuda.words(case) for case in cases]
        limit = " ".join(text for text in [*words, bounds.get(number, "")] if text) or "-"
        lines.append(f"| {number} | {what} | {target} | {row.text()} | {commands} | {limit} |")
    return "\n".join(lines)
