#!/usr/bin/env python3
"""Write a GGUF file whose quantised weights are expanded to F32, with all else as it was.

    expand_gguf.py SOURCE.gguf TARGET.gguf

The values come from the Python package gguf, so this is independent of Vernier's own decoding. What is computed from
such a file is what the quantised weights say, to the bit of an F32: the base of target C14 (docs/performance.md).
"""

import argparse

import gguf
import numpy as np


def copy_metadata(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType.ALL_F32)
        kind = field.types[0]
        writer.add_key_value(name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def expand(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    arguments = parser.parse_args()
    expand(arguments.source, arguments.target)


if __name__ == "__main__":
    main()
