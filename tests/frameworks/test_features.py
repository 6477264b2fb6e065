# SPDX-License-Identifier: Apache-2.0
"""What trainers use of PyTorch beside models and optimizers, on the emulated GPU."""

import gc
import io
import json

import pytest
import torch
import torch.nn.functional as F
from models import GPT, VOCABULARY, fit_gpt
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from training import fingerprint, random, train


def test_a_loader_with_persistent_workers_feeds_two_epochs():
    data = TensorDataset(torch.arange(64.0).view(32, 2))
    loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True)
    epochs = [torch.cat([batch.to("cuda", non_blocking=True) for (batch,) in loader]).cpu() for _ in range(2)]
    assert all(torch.equal(epoch, torch.arange(64.0).view(32, 2)) for epoch in epochs)


def scaled_steps(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = model(random(8, 16, seed=step).to(device))
        scaler.scale(F.mse_loss(outputs.float(), random(8, 16, seed=-step - 1).to(device))).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return fingerprint(model.state_dict().values())


def test_scaled_and_clipped_gradients_give_the_bits_of_a_cpu_run():
    assert scaled_steps("cuda") == scaled_steps("cpu")


@pytest.mark.parametrize("place", ["cpu", "cuda", "cuda:0", None])
def test_a_saved_state_loads_anywhere(place):
    model = GPT().cuda()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location=place)
    assert {tensor.device.type for tensor in loaded.values()} == {"cpu" if place == "cpu" else "cuda"}
    assert fingerprint(loaded.values()) == fingerprint(model.state_dict().values())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_gives_the_bits_of_a_plain_run(use_reentrant):
    def fit(again):
        torch.manual_seed(0)
        model = GPT().cuda()
        if again:
            for block in model.blocks:
                block.forward = lambda x, plain=block.forward: checkpoint(
                    plain, x, use_reentrant=use_reentrant
                )

        def loss_of(model, step):
            tokens = random(4, 17, seed=step, below=VOCABULARY).cuda()
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        return train(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of, steps=3)

    assert fit(True) == fit(False)


def test_saving_on_the_cpu_in_pinned_memory_gives_the_bits_of_a_plain_run():
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        there = fit_gpt("cuda")
    assert there == fit_gpt("cuda")


def test_the_profiler_with_cuda_activity_sees_the_operators(tmp_path):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        (torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")).sum().item()
    assert "aten::mm" in {event.key for event in profile.key_averages()}
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_ranges_can_be_marked():
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")
        assert (torch.ones(2, device="cuda") + 1).tolist() == [2.0, 2.0]


def test_streams_and_events_report_their_state():
    stream = torch.cuda.Stream(priority=-1)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        began.record()
        x = torch.ones(1000, device="cuda").cumsum(0)
        ended.record()
    stream.synchronize()
    assert (stream.query(), ended.query(), stream.priority) == (True, True, -1)
    assert began.elapsed_time(ended) >= 0
    torch.cuda.current_stream().wait_event(ended)
    assert x[-1].item() == 1000


def test_memory_counts_peaks_and_forgets_them():
    gc.collect()  # the tests before leave cycles that hold tensors
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = torch.empty(1 << 20, device="cuda")
    del block
    assert torch.cuda.max_memory_allocated() - before == 4 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
