# SPDX-License-Identifier: Apache-2.0
"""A loader that copies the next batch on a stream of its own, with a mistake that most runs do not show.

spillway emulate --check -- python examples/find_a_race.py           # names the race
spillway emulate --check -- python examples/find_a_race.py --fixed   # finds none
"""

import sys

import torch

FIXED = "--fixed" in sys.argv

batches = [torch.full((1024, 1024), float(i)).pin_memory() for i in range(4)]
loading = torch.cuda.Stream()
totals = []
for batch in batches:
    with torch.cuda.stream(loading):
        arrived = batch.to("cuda", non_blocking=True)
    if FIXED:
        torch.cuda.current_stream().wait_stream(loading)  # use the batch only when it is there
        arrived.record_stream(torch.cuda.current_stream())  # and give its memory away only when it was used
    totals.append((arrived * 2).sum())

print([total.item() / 2**20 for total in totals])
