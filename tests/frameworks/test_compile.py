# SPDX-License-Identifier: Apache-2.0
"""torch.compile on the emulated GPU: inductor's place is taken, openly, with the bits of eager mode."""

import pytest
import torch
import torch.nn.functional as F
from models import GPT, VOCABULARY
from training import random, train

SAID = "spillway-emulator: torch.compile uses backend aot_eager: "


def fit(compiled, **options):
    torch.manual_seed(0)
    model = GPT(dropout=0.0).cuda()
    run = torch.compile(model, **options) if compiled else model

    def loss_of(model, step):
        tokens = random(4, 17, seed=step, below=VOCABULARY).cuda()
        return F.cross_entropy(run(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of, steps=3)


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "max-autotune"}, {"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}],
)
def test_inductor_gives_the_bits_of_eager_mode(options):
    torch._dynamo.reset()
    assert fit(True, **options) == fit(False)


COMPILE = """
import sys
{before}
import torch
double = torch.compile(lambda x: x * 2 + 1{options})
print([double(torch.ones(n, device="{device}")).tolist() for n in (2, 3)])
"""


def compiled(python, options="", device="cuda", before=""):
    done = python("-W", "ignore", "-c", COMPILE.format(options=options, device=device, before=before))
    assert done.stdout.startswith("[[3.0, 3.0], [3.0, 3.0, 3.0]]"), done.stderr
    return done.stderr


def test_the_substitution_is_announced_once(python):
    said = compiled(python)
    assert said.startswith(SAID)
    assert said.count("\n") == 1


def test_nothing_needs_triton(python):
    assert SAID in compiled(python, before="sys.modules['triton'] = None")


def test_other_backends_are_untouched(python):
    assert compiled(python, ", backend='eager'") == ""


def test_a_backend_that_was_looked_up_is_replaced_too(python):
    lookup = ", backend=__import__('torch._dynamo')._dynamo.lookup_backend('inductor')"
    assert compiled(python, lookup).startswith(SAID)


def test_starting_imports_no_compiler(python):
    done = python(
        "-c", "import sys, torch; print('torch._dynamo.eval_frame' in sys.modules, 'triton' in sys.modules)"
    )
    assert done.stdout == "False False\n"


def test_ahead_of_time_compilation_is_refused_by_name():
    exported = torch.export.export(torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2, device="cuda"),))
    with pytest.raises(NotImplementedError, match="aoti_compile_and_package"):
        torch._inductor.aoti_compile_and_package(exported)
