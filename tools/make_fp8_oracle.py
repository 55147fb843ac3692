#!/usr/bin/env python3
"""Make the oracle of block-FP8 linears: tests/data/format/fp8_block_oracle.{json,bin}. Needs numpy only.

    make_fp8_oracle.py [--out FOLDER]

Written from the description of the format (docs/formats/fp8.md), not from Vernier's code: E4M3 bytes, BF16 scales, inputs,
and the products in float64. Sums of magnitudes, for bounds, and wrong products are float32. Each case also has the
products of mistakes that one can make with such weights, so that the test can show that the data tells them apart:

  divide          the scale divides instead of multiplying
  one-k-scale     the scale of the first 128 columns is used for the whole row: all sums first, one scale at the end
  transposed      the grid is read column after column
  narrow-grid     a partial block at the right edge has no column of its own in the grid
  stacked-origin  members of a group share one grid that goes on from member to member
  local-origin    a part of a tensor counts block rows from its own first row instead of the tensor's
  overwrite       an output that should be added to is replaced

The JSON file holds shapes and, for each array, its place in the binary file and its SHA-256.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

BLOCK = 128
TOKENS = 2


def e4m3_values():
    """All 256 codes as float64: 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN; no infinities."""
    values = np.empty(256)
    for code in range(256):
        exponent, mantissa = (code >> 3) & 15, code & 7
        size = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        values[code] = np.nan if exponent == 15 and mantissa == 7 else (-size if code & 128 else size)
    return values


E4M3 = e4m3_values()


def bf16(values):
    """Nearest BF16 (ties to even) of positive or negative finite numbers: the 16 stored bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class Maker:
    def __init__(self):
        self.random = np.random.Generator(np.random.PCG64(20261130))
        self.blob = bytearray()

    def store(self, array):
        data = np.ascontiguousarray(array).tobytes()
        entry = {"offset": len(self.blob), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.blob += data
        return entry

    def codes(self, rows, cols):
        """Every finite code occurs in a large matrix."""
        return self.random.choice([code for code in range(256) if code & 0x7F != 0x7F], (rows, cols)).astype(np.uint8)

    def grid(self, rows, cols):
        """Powers of two far below 1, at least a factor of two between neighbours, with a random mantissa on top."""
        exponents = -12 + 3 * ((np.arange(rows)[:, None] + 2 * np.arange(cols)[None, :]) % 4)
        return bf16(np.exp2(exponents) * self.random.uniform(1.0, 1.4, (rows, cols)))

    def inputs(self, tokens, cols):
        """Numbers that BF16 holds, so that rounding inputs to it changes nothing."""
        return bf16_value(bf16(self.random.normal(0.0, 1.0, (tokens, cols)))).astype(np.float32)


def product(codes, scale_of, x):
    """Float64 products [tokens, rows] and the sums of magnitudes; scale_of(r, c) are arrays of scales."""
    rows, cols = codes.shape
    weights = E4M3[codes] * scale_of(np.arange(rows)[:, None], np.arange(cols)[None, :])
    wide = x.astype(np.float64)
    return wide @ weights.T, np.abs(wide) @ np.abs(weights).T


def blocks(n):
    return (n + BLOCK - 1) // BLOCK


def make_member(maker, x, rows, cols, wrong, first_row=0, before=None):
    """One weight, its products, and those of the mistakes named in `wrong`."""
    grid_rows = blocks(first_row + rows)
    codes = maker.codes(rows, cols)
    bits = maker.grid(grid_rows, blocks(cols))
    grid = bf16_value(bits)
    right = lambda r, c: grid[(first_row + r) // BLOCK, c // BLOCK]
    expected, magnitude = product(codes, right, x)
    mistakes = {
        "divide": lambda r, c: 1.0 / right(r, c),
        "one-k-scale": lambda r, c: right(r, 0 * c),
        "transposed": lambda r, c: grid.T.reshape(grid.shape)[(first_row + r) // BLOCK, c // BLOCK],
        "narrow-grid": lambda r, c: grid.ravel()[((first_row + r) // BLOCK * (cols // BLOCK) + c // BLOCK) % grid.size],
        "local-origin": lambda r, c: grid[r // BLOCK, c // BLOCK],
    }
    outputs = {name: product(codes, mistakes[name], x)[0] for name in wrong if name in mistakes}
    if before is not None:
        outputs["overwrite"] = expected
        expected = expected + before.astype(np.float64)
        magnitude = magnitude + np.abs(before)
    return {"codes": codes, "bits": bits, "grid": grid, "expected": expected, "magnitude": magnitude, "wrong": outputs,
            "first_row": first_row}


def stack_origins(members, x):
    """The mistake of a group: grids one below the other, block rows counted through all members."""
    grid = np.concatenate([member["grid"] for member in members])
    row = 0
    for member in members:
        first = row
        outputs, _ = product(member["codes"], lambda r, c: grid[(first + r) // BLOCK, c // BLOCK], x)
        if not np.array_equal(outputs, member["expected"]):
            member["wrong"]["stacked-origin"] = outputs
        row += member["codes"].shape[0]


def make_cases(maker):
    """Yields (name, x, before or None, members)."""
    def single(name, rows, cols, wrong, **more):
        x = maker.inputs(TOKENS, cols)
        return name, x, more.get("before"), [make_member(maker, x, rows, cols, wrong, **more)]

    yield single("one block", 16, 128, ["divide"])
    yield single("unequal blocks of K", 24, 300, ["divide", "one-k-scale"])
    yield single("tails both ways", 176, 150, ["divide", "one-k-scale", "transposed", "narrow-grid"])
    yield single("part of a tensor", 80, 130, ["divide", "local-origin"], first_row=100)
    yield single("long sum", 8, 1030, ["divide", "one-k-scale"])
    before = maker.random.normal(0.0, 40.0, (TOKENS, 12)).astype(np.float32)
    yield single("added to an output", 12, 200, ["divide", "one-k-scale"], before=before)
    x = maker.inputs(TOKENS, 132)
    members = [make_member(maker, x, rows, 132, ["divide", "one-k-scale"]) for rows in (70, 150, 40)]
    stack_origins(members, x)
    yield "group", x, None, members


def make(folder):
    maker = Maker()
    cases = []
    for name, x, before, members in make_cases(maker):
        case = {"name": name, "tokens": x.shape[0], "cols": x.shape[1], "x": maker.store(x), "members": []}
        if before is not None:
            case["before"] = maker.store(before)
        for member in members:
            case["members"].append({
                "rows": member["codes"].shape[0], "first_row": member["first_row"],
                "grid_rows": member["bits"].shape[0], "grid_cols": member["bits"].shape[1],
                "codes": maker.store(member["codes"]), "scales": maker.store(member["bits"]),
                "expected": maker.store(member["expected"]), "magnitude": maker.store(member["magnitude"].astype(np.float32)),
                "wrong": {mistake: maker.store(outputs.astype(np.float32)) for mistake, outputs in member["wrong"].items()}})
        cases.append(case)
    blob = bytes(maker.blob)
    (folder / "fp8_block_oracle.bin").write_bytes(blob)
    manifest = {"made_by": "tools/make_fp8_oracle.py", "block": BLOCK, "bytes": len(blob),
                "sha256": hashlib.sha256(blob).hexdigest(), "cases": cases}
    (folder / "fp8_block_oracle.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(cases)} cases, {len(blob)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "tests/data/format")
    make(parser.parse_args().out)


if __name__ == "__main__":
    main()
