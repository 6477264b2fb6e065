# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of pages, page by page in one process: `run_pages.py PAGES RESULTS`.

Both are JSON files. PAGES has [name, [[line, text], ...]] for each page; RESULTS gets null or a
traceback by name.
"""

import gc
import json
import pathlib
import sys
import traceback

import spillway
import torch


def run(name, blocks):
    scope = {"__name__": name}
    for line, text in blocks:
        code = compile("\n" * (line - 1) + text, name, "exec")  # so that a traceback has the page's lines
        exec(code, scope)
    torch.cuda.synchronize()


spillway.use_allocator()
results = {}
for name, blocks in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    try:
        run(name, blocks)
        results[name] = None
    except Exception:
        results[name] = traceback.format_exc()
    gc.collect()
    torch.cuda.empty_cache()
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
