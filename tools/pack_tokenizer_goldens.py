#!/usr/bin/env python3
"""Writes tests/data/text from a folder of tokenizer goldens.

The source folder holds strings.jsonl.gz ({"i","text"} or {"i","base64"}), goldens/NAME.jsonl.gz (a header, then
{"s","add","parse","ids"} and {"ids","skip","text"}) and a tokenizer.json for each NAME given as NAME=PATH. Ids and texts
come from PyPI tokenizers 0.23.3; this only leaves out strings whose expectations depend on a newer Unicode version and
writes the mebibyte of one letter as a repetition, so that the files stay small.

Also writes pieces-NAME.jsonl for each pre-tokenizer of pretokenizers.json: the lengths in characters of the pieces that
the same library cuts each string into.
"""
import argparse
import base64
import gzip
import json
import os
import shutil

from tokenizers import Regex, normalizers, pre_tokenizers


def rows(path):
    with gzip.open(path, "rb") as file:
        return [json.loads(line) for line in file]


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def runs(ids):
    """[[id, count], ...] of neighbouring equal ids."""
    packed = []
    for i in ids:
        if packed and packed[-1][0] == i:
            packed[-1][1] += 1
        else:
            packed.append([i, 1])
    return packed


def pack_strings(strings, out):
    lines = []
    for string in strings:
        line = {key: string[key] for key in ("i", "text", "base64") if key in string}
        if string["kind"] == "run1m":
            line = {"i": string["i"], "repeat": string["text"][0], "count": len(string["text"])}
        lines.append(line)
    write(os.path.join(out, "strings.jsonl"), lines)


def pack_goldens(source, name, strings, out):
    header, *cases = rows(os.path.join(source, "goldens", name + ".jsonl.gz"))
    beyond = set(header["beyond_strings"])
    lines = []
    for case in cases:
        if case.get("beyond") or ("s" in case and (case["s"] in beyond or strings[case["s"]].get("beyond"))):
            continue
        if "s" in case and len(case["ids"]) > 10000:
            case["runs"] = runs(case.pop("ids"))
        lines.append(case)
    write(os.path.join(out, name + ".jsonl"), lines)


def pre_tokenizer(steps):
    """The library's parts for the steps of one row of pretokenizers.json."""
    parts = []
    for step in steps:
        if "split" in step:
            parts.append(pre_tokenizers.Split(Regex(step["split"]), "isolated"))
        elif "digits" in step:
            parts.append(pre_tokenizers.Digits(individual_digits=True))
        else:
            parts.append(pre_tokenizers.Punctuation("contiguous"))
    return pre_tokenizers.Sequence(parts)


def pack_pieces(source, strings, out):
    table = json.load(open(os.path.join(source, "pretokenizers.json"), encoding="utf-8"))["pre"]
    for name, row in table.items():
        splitter = pre_tokenizer(row["steps"])
        lines = []
        for string in strings:
            if string.get("beyond") or string["kind"] == "run1m":
                continue
            text = string.get("text")
            if text is None:
                text = base64.b64decode(string["base64"]).decode("utf-8", "replace")
            if row["normalizer"] == "NFC":
                text = normalizers.NFC().normalize_str(text)
            lines.append({"i": string["i"], "pieces": [len(piece) for piece, _ in splitter.pre_tokenize_str(text)]})
        write(os.path.join(out, "pieces-%s.jsonl" % name), lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("tokenizers", nargs="*", metavar="NAME=PATH", help="a tokenizer.json to copy, with its goldens")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    strings = rows(os.path.join(args.source, "strings.jsonl.gz"))
    pack_strings(strings, args.out)
    pack_pieces(args.source, strings, args.out)
    for pair in args.tokenizers:
        name, path = pair.split("=", 1)
        shutil.copyfile(path, os.path.join(args.out, name + ".tokenizer.json"))
        pack_goldens(args.source, name, strings, args.out)


if __name__ == "__main__":
    main()
