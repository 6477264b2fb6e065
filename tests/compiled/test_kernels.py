# SPDX-License-Identifier: Apache-2.0
"""Model state that kernels of inductor's code use."""

import json
import sys

from launched import spillway

# Inductor's autotuner with a stand-in for the kernel: on a GPU it would launch one.
PROGRAM = """
import json
import spillway, torch
from spillway._load import glue
from torch import nn
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

class Kernel:
    arg_names = ["in_ptr0", "in_out_ptr0", "xnumel"]
    def __getitem__(self, grid):
        def launch(read, written, count):
            launches.append([read.data_ptr() != 0, on_gpu(read), on_gpu(written), release()])
        return launch

class Autotuner(CachingAutotuner):
    triton_interpret, configs = True, [type("Config", (), {"kwargs": {}})]
    fn, mutated_arg_names = Kernel(), ["in_out_ptr0"]
    def __init__(self): pass
    def _interpret_args_grid(self, arguments, config): return arguments, None

spillway.use_allocator()
net = spillway.offload(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16))), budget="64MiB").cuda()
with torch.no_grad():
    net(torch.randn(8, 1024, device="cuda"))
read, written = net[0].weight, net[1].weight
on_gpu = lambda tensor: not glue().is_offloaded(tensor.untyped_storage())
release = lambda: glue().offload_tensors([read, written])
release()
launches, before = [], [on_gpu(read), on_gpu(written)]
Autotuner().run(read, written, 8, stream=0)
copied = spillway.stats()["model_state"]["copied_bytes"]
bytes_after = release()
print(json.dumps({
    "before": before, "launches": launches, "released": bytes_after,
    "copied": spillway.stats()["model_state"]["copied_bytes"] - copied,
}))
"""


def test_they_are_on_the_gpu_during_a_launch_only():
    done = spillway("emulate", "--check", "--schedule=late", "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    size = 1024 * 1024 * 4
    assert found["before"] == [False, False]
    assert found["launches"] == [[True, True, True, 0]]  # nothing can leave meanwhile
    assert found["released"] == 2 * size  # although the kernel took their addresses
    assert found["copied"] == size  # what it has only read leaves without a copy
