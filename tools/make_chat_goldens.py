#!/usr/bin/env python3
"""Refreshes tests/data/chat/language.jsonl: what jinja2, set up as transformers does, makes of each template there.

    tools/make_chat_goldens.py [--check]

Each line is {"template": ...} with "text" (the rendering) or "error": true (any error). --check only compares. Needs
PyPI jinja2 3.1. All templates get the request in REQUEST.
"""
import argparse
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests/data/chat/language.jsonl')
REQUEST = {
    'messages': [
        {'role': 'system', 'content': 'Sys <b>'},
        {'role': 'user', 'content': 'héllo wörld'},
        {'role': 'assistant', 'content': None, 'n': 3, 'x': 1.5,
         'tool_calls': [{'function': {'name': 'f', 'arguments': {'b': 1, 'a': 'x'}}}]},
    ],
    'add_generation_prompt': True, 'bos_token': '<s>', 'tools': None, 'documents': None, 'foo': 'bar', 'num': 7,
}
NOW = datetime.datetime(2026, 1, 31, 9, 5, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %} renders its body."""
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return nodes.CallBlock(self.call_method('_render'), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[jinja2.ext.loopcontrols, Generation])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = NOW.strftime
    return env


def golden(env, template):
    try:
        return {'template': template, 'text': env.from_string(template).render(**REQUEST)}
    except Exception:  # whatever Python raises, the engine has to give an error
        return {'template': template, 'error': True}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    env = environment()
    with open(FILE, encoding='utf-8') as f:
        old = f.read()
    new = ''.join(json.dumps(golden(env, json.loads(line)['template']), ensure_ascii=False) + '\n'
                  for line in old.split('\n') if line)
    if arguments.check:
        return 0 if new == old else 1
    with open(FILE, 'w', encoding='utf-8', newline='') as f:
        f.write(new)
    return 0


if __name__ == '__main__':
    sys.exit(main())
