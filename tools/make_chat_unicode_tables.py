#!/usr/bin/env python3
"""Writes src/chat/jinja/unicode_tables.inc: the character properties and case mappings behind Python's str methods.

    tools/make_chat_unicode_tables.py [OUTPUT]

Properties are those of the running Python (see its unicodedata.unidata_version, which the file states).
"""
import argparse
import os
import sys
import unicodedata

LAST = 0x110000
HERE = os.path.dirname(os.path.abspath(__file__))


def ranges(predicate):
    """Runs (first, last, stride) of code points (without surrogates) for which `predicate` holds."""
    runs = []
    for code in range(LAST):
        if 0xD800 <= code < 0xE000 or not predicate(chr(code)):
            continue
        if runs:
            first, last, stride = runs[-1]
            step = code - last
            if step in (1, 2) and (first == last or step == stride):
                runs[-1] = (first, code, step)
                continue
        runs.append((code, code, 1))
    return runs


def case_rules(mapping, default):
    """Runs (first, last, stride, delta) of one-to-one mappings that aren't `default`'s, and the one-to-many ones."""
    single, many = [], []
    for code in range(LAST):
        if 0xD800 <= code < 0xE000:
            continue
        to = mapping(chr(code))
        if to == default(chr(code)):
            continue
        if len(to) == 1:
            single.append((code, ord(to) - code))
        else:
            many.append((code, to))
    runs = []
    for code, delta in single:
        if runs and runs[-1][3] == delta:
            first, last, stride, _ = runs[-1]
            step = code - last
            if step in (1, 2) and (first == last or step == stride):
                runs[-1] = (first, code, step, delta)
                continue
        runs.append((code, code, 1, delta))
    return runs, many


def lines(items, width=118):
    out, line = [], ' '
    for item in items:
        if len(line) + len(item) + 2 > width:
            out.append(line)
            line = ' '
        line += ' ' + item + ','
    out.append(line)
    return '\n'.join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('output', nargs='?', default=os.path.join(HERE, '..', 'src/chat/jinja/unicode_tables.inc'))
    out = ['// Made by tools/make_chat_unicode_tables.py from Unicode %s. Do not edit.' % unicodedata.unidata_version]
    properties = [
        ('kNotPrintable', lambda c: not c.isprintable()),
        ('kAlphabetic', str.isalpha),
        ('kDecimal', str.isdecimal),
        ('kDigit', str.isdigit),
        ('kUppercase', str.isupper),
        ('kLowercase', str.islower),
    ]
    for name, predicate in properties:
        found = ranges(predicate)
        out.append('constexpr Range %s[] = {' % name)
        out.append(lines('{0x%X,0x%X,%d}' % r for r in found))
        out.append('};')
    # Title cases are listed where they differ from upper case.
    for name, mapping, default in (('Upper', str.upper, str), ('Lower', str.lower, str), ('Title', str.title, str.upper)):
        runs, many = case_rules(mapping, default)
        out.append('constexpr CaseRun k%sRuns[] = {' % name)
        out.append(lines('{0x%X,0x%X,%d,%d}' % r for r in runs))
        out.append('};')
        out.append('constexpr CaseExpansion k%sExpansions[] = {' % name)
        out.append(lines('{0x%X, {%s}}' % (code, ', '.join('0x%X' % ord(c) for c in to)) for code, to in many))
        out.append('};')
    with open(parser.parse_args().output, 'w', encoding='utf-8') as f:
        f.write('\n'.join(out) + '\n')


if __name__ == '__main__':
    sys.exit(main())
