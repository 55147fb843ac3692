#!/usr/bin/env python3
"""Writes tests/data/format: golden bytes and values for the codecs and weight formats of src/format.

Everything here is computed from the definitions with exact fractions, never with Vernier's own code; the ggml types
come from the `gguf` package's dequantize. The seed is fixed: running it again gives the same files.

Files (little-endian arrays without headers):
  codec_<name>.f32    the value of every code of a scalar codec (NaN is 0x7FC00000)
  rounding.u32        rows of four words: a float's bits, then the nearest bf16, f16 and e4m3 codes
  ggml_<type>.blocks  random blocks of a ggml type, and ggml_<type>.f32, their values
  <format>.{interleaved,codes,scales,f64}  one matrix in both layouts, every code under every legal scale
  fp8_grid.{codes,f32_scales,bf16_scales,e8m0_scales}, fp8_grid_<dtype>.f64  a matrix under a grid with partial tiles
"""

import argparse
import bisect
import math
import pathlib
import struct
from fractions import Fraction

import gguf
import numpy as np

QUIET_NAN = 0x7FC00000


def power_of_two(exponent):
    return Fraction(2) ** exponent


def minifloat(code, exponent_bits, mantissa_bits):
    """The magnitude of a code whose largest exponent is an ordinary one, as a fraction."""
    bias = 2 ** (exponent_bits - 1) - 1
    mantissa = Fraction(code % 2**mantissa_bits, 2**mantissa_bits)
    exponent = code // 2**mantissa_bits % 2**exponent_bits
    if exponent == 0:
        return mantissa * power_of_two(1 - bias)
    return (1 + mantissa) * power_of_two(exponent - bias)


def signed(code, exponent_bits, mantissa_bits, special):
    """(negative, magnitude or 'nan' or 'inf') of a signed code; `special` maps magnitude codes that aren't numbers."""
    sign_bit = 2 ** (exponent_bits + mantissa_bits)
    low = code % sign_bit
    return code >= sign_bit, special(low) or minifloat(low, exponent_bits, mantissa_bits)


def ieee_special(exponent_bits, mantissa_bits):
    infinity = (2**exponent_bits - 1) * 2**mantissa_bits
    return lambda low: None if low < infinity else ("inf" if low == infinity else "nan")


CODECS = {
    "e2m1": (4, lambda c: signed(c, 2, 1, lambda low: None)),
    "e4m3": (8, lambda c: signed(c, 4, 3, lambda low: "nan" if low == 0x7F else None)),
    "e5m2": (8, lambda c: signed(c, 5, 2, ieee_special(5, 2))),
    "e8m0": (8, lambda c: (False, "nan" if c == 255 else power_of_two(c - 127))),
    "f16": (16, lambda c: signed(c, 5, 10, ieee_special(5, 10))),
    "bf16": (16, lambda c: signed(c, 8, 7, ieee_special(8, 7))),
}


def float_bits(negative, magnitude):
    """The bits of the fp32 number that equals the value exactly."""
    if magnitude == "nan":
        return QUIET_NAN
    bits = 0x7F800000 if magnitude == "inf" else struct.unpack("<I", struct.pack("<f", float(magnitude)))[0]
    if magnitude != "inf":
        assert Fraction(struct.unpack("<f", struct.pack("<I", bits))[0]) == magnitude
    return bits | (0x80000000 if negative else 0)


def value_of(codec, code):
    """A finite code's value as a double (exact: doubles hold every product of two such values too)."""
    negative, magnitude = CODECS[codec][1](code)
    return -float(magnitude) if negative else float(magnitude)


def codec_goldens():
    return {
        f"codec_{name}.f32": np.array([float_bits(*decode(code)) for code in range(2**bits)], dtype="<u4")
        for name, (bits, decode) in CODECS.items()
    }


def rounding_golden(rng):
    """Nearest-even encodings of awkward floats: neighbours and midpoints of codes, limits, random bits."""
    magnitudes = {}
    for name, count in (("bf16", 0x7F80), ("f16", 0x7C00), ("e4m3", 0x7F)):
        magnitudes[name] = [CODECS[name][1](code)[1] for code in range(count)]

    def nearest(name, value, overflow_code):
        """The code nearest to a magnitude, ties to even; one step beyond the last is `overflow_code`."""
        table = magnitudes[name]
        step = table[-1] - table[-2]
        if value >= table[-1]:
            return len(table) - 1 if value - table[-1] < step / 2 else overflow_code
        upper = bisect.bisect_right(table, value)
        below, above = value - table[upper - 1], table[upper] - value
        if below == above:
            return upper if upper % 2 == 0 else upper - 1
        return upper if above < below else upper - 1

    values = [0.0, 448.0, 449.0, 464.0, 480.0, 1e9, 65504.0, 65519.996, 65520.0, 3.4e38, 3.3961e38, 1e-45, 1e-40]
    for name in ("e4m3", "f16", "bf16"):
        table = magnitudes[name]
        for i in range(0, len(table) - 1, 1 if name == "e4m3" else 331):
            values.append(float((table[i] + table[i + 1]) / 2))
            values.append(float(table[i]))
    words = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    words += [word + delta for word in words for delta in (-1, 1) if 0 <= word + delta < 0x7F800000]
    words += [int(word) for word in rng.integers(0, 0x7F800000, 500)]
    rows = []
    for i, word in enumerate(sorted(set(words))):
        value = Fraction(struct.unpack("<f", struct.pack("<I", word))[0])
        sign = i % 2
        rows.append([word | sign << 31, nearest("bf16", value, 0x7F80) | sign << 15,
                     nearest("f16", value, 0x7C00) | sign << 15, nearest("e4m3", value, 0x7E) | sign << 7])
    return {"rounding.u32": np.array(rows, dtype="<u4")}


GGML_TYPES = {  # name: byte offsets of the F16 numbers in a block
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208], "iq4_nl": [0], "iq4_xs": [0],
}
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]


def ggml_goldens(rng, num_blocks=64):
    files = {}
    for name, offsets in GGML_TYPES.items():
        kind = gguf.GGMLQuantizationType[name.upper()]
        block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = rng.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
        for b in range(num_blocks):
            for k, offset in enumerate(offsets):
                scale = np.float16(rng.standard_normal() * 0.05).view(np.uint16)
                if b < len(EXTREME_F16):
                    scale = EXTREME_F16[(b + 3 * k) % len(EXTREME_F16)]
                blocks[b, offset : offset + 2] = list(struct.pack("<H", scale))
        blocks[8, : block_bytes] = np.where(np.isin(np.arange(block_bytes), [o + d for o in offsets for d in (0, 1)]),
                                            blocks[8], 0xFF)
        files[f"ggml_{name}.blocks"] = blocks
        files[f"ggml_{name}.f32"] = gguf.dequantize(blocks, kind).astype("<f4")
    return files


def pack_pairs(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def pack_halves(codes):
    half = codes.shape[-1] // 2
    return (codes[..., :half] | codes[..., half:] << 4).astype(np.uint8)


def both_layouts(rng, name, scale_codec, num_scales, group, groups_per_block, rows):
    """Every 4-bit code under each scale byte 0 .. num_scales - 1, plus one more group to fill the shape."""
    groups = np.stack([np.concatenate([rng.permutation(16) for _ in range(group // 16)])
                       for _ in range(num_scales + 1)]).astype(np.uint8)
    scales = np.append(rng.permutation(num_scales), 1).astype(np.uint8)
    values = np.array([[value_of("e2m1", code) * value_of(scale_codec, scale) for code in codes]
                       for codes, scale in zip(groups.tolist(), scales.tolist())])
    blocks_of_scales = scales.reshape(-1, groups_per_block)
    blocks_of_codes = pack_halves(groups).reshape(blocks_of_scales.shape[0], -1)
    interleaved = np.concatenate([blocks_of_scales, blocks_of_codes], axis=1)

    # The package folds a factor of two from its code table into its scales, and its table has no negative zero.
    with np.errstate(over="ignore"):
        theirs = gguf.dequantize(interleaved, gguf.GGMLQuantizationType[name.upper()]).reshape(values.shape)
        assert np.array_equal(theirs, values.astype(np.float32))
    return {
        f"{name}.interleaved": interleaved,
        f"{name}.codes": pack_pairs(groups),
        f"{name}.scales": scales.reshape(rows, -1),
        f"{name}.f64": values.astype("<f8"),
    }


def grid_golden(rng, rows=70, cols=50, tile_rows=32, tile_cols=16):
    """Codes under a grid whose last tiles are partial in both directions, with scales of three dtypes."""
    finite = np.array([code for code in range(256) if code % 128 != 127], dtype=np.uint8)
    codes = np.concatenate([finite, rng.choice(finite, rows * cols - len(finite))]).reshape(rows, cols)
    grid = (math.ceil(rows / tile_rows), math.ceil(cols / tile_cols))
    f32 = np.exp(rng.normal(-6, 2, grid)).astype("<f4")
    bf16 = (f32.view("<u4") >> 16).astype("<u2")
    e8m0 = rng.integers(100, 140, grid, dtype=np.uint8)
    e8m0[0, 0], e8m0[-1, -1] = 0, 246
    scale_values = {
        "f32": f32.astype(np.float64),
        "bf16": (bf16.astype("<u4") << 16).view("<f4").astype(np.float64),
        "e8m0": np.array([[value_of("e8m0", b) for b in line] for line in e8m0.tolist()]),
    }
    files = {"fp8_grid.codes": codes, "fp8_grid.f32_scales": f32, "fp8_grid.bf16_scales": bf16,
             "fp8_grid.e8m0_scales": e8m0}
    elements = np.array([[value_of("e4m3", code) for code in line] for line in codes.tolist()])
    for dtype, scales in scale_values.items():
        spread = scales.repeat(tile_rows, axis=0)[:rows].repeat(tile_cols, axis=1)[:, :cols]
        files[f"fp8_grid_{dtype}.f64"] = (elements * spread).astype("<f8")  # 4 + 24 bits: exact in a double
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "format"
    parser.add_argument("--output", type=pathlib.Path, default=default, help="folder to write (default: %(default)s)")
    output = parser.parse_args().output
    rng = np.random.default_rng(20250101)
    files = codec_goldens()
    files |= rounding_golden(rng)
    files |= ggml_goldens(rng)
    files |= both_layouts(rng, "nvfp4", "e4m3", num_scales=127, group=16, groups_per_block=4, rows=4)
    files |= both_layouts(rng, "mxfp4", "e8m0", num_scales=255, group=32, groups_per_block=1, rows=8)
    files |= grid_golden(rng)
    output.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        (output / name).write_bytes(array.tobytes())
    print(f"{len(files)} files, {sum(array.nbytes for array in files.values())} bytes in {output}")


if __name__ == "__main__":
    main()
