# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of pages, page by page in one process: `run_pages.py PAGES RESULTS`.

Both are JSON files. PAGES has [name, [[line, text, prints], ...]] for each page; RESULTS gets null, or what
went wrong, by name.
"""

import contextlib
import gc
import io
import json
import pathlib
import sys
import traceback

import spillway
import torch


def run(name, blocks):
    scope = {"__name__": name}
    for line, text, prints in blocks:
        code = compile("\n" * (line - 1) + text, name, "exec")  # so that a traceback has the page's lines
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, scope)
        for each in prints:
            assert each in output.getvalue(), f"{name}:{line} prints, without {each!r}:\n{output.getvalue()}"
    torch.cuda.synchronize()


spillway.use_allocator()
results = {}
for name, blocks in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    try:
        run(name, blocks)
        results[name] = None
    except Exception:
        results[name] = traceback.format_exc()
    spillway.step()  # a page begins outside of a step
    gc.collect()
    torch.cuda.empty_cache()
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
