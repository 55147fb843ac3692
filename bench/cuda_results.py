"""What bench/results/h200-*.json say, for bench/cuda_table.py and bench/cuda_targets.py; and what others did on such a card."""

from cpu_table import results

PREFIX = "h200-"
# llama.cpp (build 11434) on such a card: tokens a second of one sequence, of one at 32000, of a prompt of 2048,
# milliseconds of a step of so many sequences; with experts on the host (generation, prompt), and with half of the layers on
# the GPU. Measured once, apart from our runs.
PEER_DECODE = {"gpt-oss-20b": 304, "gpt-oss-120b": 219, "llama-3.1-8b nvfp4": 277, "llama-3.1-8b bf16": 204,
               "qwen3-30b-a3b nvfp4": 252, "qwen35-35b-a3b nvfp4": 214}
PEER_DEEP = {"llama-3.1-8b nvfp4": 185, "qwen3-30b-a3b nvfp4": 186, "qwen35-35b-a3b nvfp4": 207}
PEER_PREFILL = {"llama-3.1-8b nvfp4": 8300, "qwen3-30b-a3b nvfp4": 9900, "gpt-oss-20b": 14000,
                "qwen35-35b-a3b nvfp4": 8300}
PEER_STEP_MS = {"qwen3-30b-a3b nvfp4": {8: 9.1, 32: 34.0, 128: 73.0}}
PEER_CPU_EXPERTS = {"qwen3-30b-a3b nvfp4": (34.7, 4580), "gpt-oss-20b": (37.1, 5950),
                    "qwen35-35b-a3b nvfp4": (45.5, 3362), "gpt-oss-120b": (22.0, 269)}
PEER_HALF_LAYERS = {"qwen3-30b-a3b nvfp4": 54.4, "gpt-oss-20b": 61.6}
PEER_CPU_ONLY = {"llama-3.1-8b nvfp4": (10.9, 25), "gpt-oss-20b": (21.8, 70)}  # generation, prompt of 512
PCIE_GB_S = 55.5
TITLES = {"llama-3.2-1b": "Llama-3.2-1B", "llama-3.1-8b": "Llama-3.1-8B", "qwen3-30b-a3b": "Qwen3-30B-A3B",
          "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b", "qwen35-35b-a3b": "Qwen3.5-35B-A3B",
          "gemma4-26b-a4b": "Gemma-4-26B-A4B"}
FORMATS = {"nvfp4": "NVFP4", "mxfp4": "MXFP4", "fp8-block": "block FP8", "bf16": "BF16", "q4_k": "Q4_K"}


def words_after(command, flag, default=""):
    words = command.split()
    return words[words.index(flag) + 1] if flag in words else default


def name_of(command):
    """"llama-3.1-8b nvfp4": the shape and, where given, the format of a command."""
    shape, kind = words_after(command, "--synthetic"), words_after(command, "--format")
    return f"{shape} {kind}" if kind else shape


def title(name):
    shape, _, kind = name.partition(" ")
    return f"{TITLES.get(shape, shape)}, {FORMATS.get(kind, kind) if kind else 'MXFP4'}"


def runs(group, prefix=PREFIX):
    """[(command, results)] of a group; empty where it hasn't been measured."""
    record = results(prefix + group)
    return [(run["command"], run["results"]) for run in record["runs"] if "results" in run] if record else []


def tests(group, depth=None):
    """{model: {test: result}} of a group's runs, of one depth if there are several."""
    found = {}
    for command, rows in runs(group):
        if "--synthetic" in command:
            wanted = {row["test"]: row for row in rows if depth is None or row["depth"] == depth}
            found.setdefault(name_of(command), {}).update(wanted)
    return found


def rate(row):
    return row["tok_s"]["median"] if row else None


def whole(value):
    return f"{value:.0f}" if value else "-"


def by_peer(value, peer):
    return f"{value / peer:.1f}x" if value and peer else "-"


def share(row):
    return f"{row['share_of_limit'] * 100:.0f} %" if row and row["share_of_limit"] else "-"


def step_ms(row, sequences):
    return 1000.0 * sequences / rate(row)


def is_exact(command):
    return "--precision f32" in command
