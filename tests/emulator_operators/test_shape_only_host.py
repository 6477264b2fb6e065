# SPDX-License-Identifier: Apache-2.0
"""What a dry run leaves alone on the host: weights that are drawn there, and weights in files."""

import json
import os
import re
import struct
import subprocess
import sys

import pytest
import torch

DRY = dict(shape_only="1", memory="80GiB")
MIB = 1 << 20
WIDTH, INNER, WORDS = 1024, 32768, 32000  # weights are much more than what modules of Python take


def own_memory():
    """Bytes of this process that are in no file."""
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\s+(\d+) kB", status.read())[1]) * 1024


def drawn_on_the_host(draw):
    tensor = torch.empty(64 * MIB)
    before = own_memory()
    getattr(tensor, draw)()
    return own_memory() - before


def test_large_weights_are_not_drawn_on_the_host(elsewhere):
    for draw in ("normal_", "uniform_"):
        assert elsewhere(drawn_on_the_host, draw, **DRY) < MIB, draw
        assert elsewhere(drawn_on_the_host, draw) > 200 * MIB, draw


def model_made_on_the_host():
    before = own_memory()
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, 4096), torch.nn.Linear(4096, WORDS, bias=False)
    ).cuda()
    return [
        own_memory() - before,
        torch.cuda.memory_allocated(),
        sum(each.nbytes for each in model.parameters()),
    ]


def test_model_made_on_the_host_takes_memory_on_the_device_alone(elsewhere):
    taken, allocated, weights = elsewhere(model_made_on_the_host, **DRY)
    assert weights == allocated == 2 * WORDS * 4096 * 4
    assert taken < weights / 10


def small_draws():
    torch.manual_seed(0)
    found = [torch.empty(MIB // 4).normal_(1, 2), torch.empty(1000).uniform_(3, 4), torch.randn(10)]
    return [[each.sum().item(), each.min().item(), each.max().item()] for each in found]


def test_small_draws_are_those_of_a_real_run(elsewhere):
    assert elsewhere(small_draws, **DRY) == elsewhere(small_draws)


def write_checkpoint(folder):
    """A Llama of two layers: the header of its weights, and a hole where they would be."""
    shapes = {"model.embed_tokens.weight": [WORDS, WIDTH], "model.norm.weight": [WIDTH]}
    for layer in range(2):
        parts = {
            **{f"self_attn.{part}_proj": [WIDTH, WIDTH] for part in "qkvo"},
            **{f"mlp.{part}_proj": [INNER, WIDTH] for part in ("gate", "up")},
            "mlp.down_proj": [WIDTH, INNER],
            **{f"{norm}_layernorm": [WIDTH] for norm in ("input", "post_attention")},
        }
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()})
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True,
        "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 8,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return end


def trained_from(folder, on_the_device):
    import transformers

    before = own_memory()
    options = {"device_map": "cuda"} if on_the_device else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **options).cuda()
    found = [own_memory() - before, sum(each.nbytes for each in model.parameters())]
    tokens = torch.zeros(1, 16, dtype=torch.long, device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    assert all(each.grad is not None for each in model.parameters())
    return found


@pytest.mark.parametrize("with_a_hole", [True, False])
def test_header_of_a_checkpoint_is_enough(elsewhere, tmp_path, with_a_hole):
    weights = write_checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    assert file.stat().st_blocks * 512 < MIB < weights
    if not with_a_hole:
        os.truncate(file, file.stat().st_size - weights)
    for on_the_device in (False, True):
        taken, bytes_of_parameters = elsewhere(trained_from, str(tmp_path), on_the_device, **DRY)
        assert bytes_of_parameters == weights
        assert taken < weights / 2, on_the_device
    assert list(tmp_path.iterdir()) == [file, tmp_path / "config.json"]


TAKEN_BEFORE_TORCH = """
from safetensors import safe_open
import safetensors, sys, torch
with safe_open(sys.argv[1], framework="pt") as file:
    assert isinstance(file, safe_open) and safe_open is safetensors.safe_open
    print(list(file.get_tensor("model.norm.weight").shape))
"""


SHAPES = {**os.environ, "SPILLWAY_EMULATE_SHAPE_ONLY": "1"}


@pytest.fixture
def run_dry(to_fork):
    return lambda program, file: to_fork.run(program, [str(file)], SHAPES)


def test_header_is_enough_where_safetensors_came_before_torch(tmp_path):
    weights = write_checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    os.truncate(file, file.stat().st_size - weights)
    command = [sys.executable, "-c", TAKEN_BEFORE_TORCH, file]
    done = subprocess.run(command, env=SHAPES, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"[{WIDTH}]\n"), done.stderr


def test_checkpoint_without_its_header_ends_the_program_with_one_line(run_dry, tmp_path):
    write_checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    os.truncate(file, 100)
    load = "import sys, torch, safetensors.torch; safetensors.torch.load_file(sys.argv[1])"
    done = run_dry(load, file)
    said = f"spillway: {re.escape(str(file))}: .*\\b100 bytes.*\n"
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(said, done.stderr), done.stderr


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12ab\nsize 16060522240\n"
LOAD = "import sys, torch; print(torch.load(sys.argv[1], mmap=True)['a'].shape)"


def assert_ended(done, file):
    """With one line about the file."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"spillway: {file}: ") and done.stderr.count("\n") == 1


def test_pointer_to_a_checkpoint_ends_the_program_with_one_line(run_dry, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(LFS_POINTER)
    load = "import sys, torch, safetensors.torch; safetensors.torch.load_file(sys.argv[1])"
    assert_ended(run_dry(load, file), file)
    assert_ended(run_dry(LOAD, file), file)


def test_saved_file_that_is_cut_off_ends_the_program_with_one_line(run_dry, tmp_path):
    file = tmp_path / "model.pt"
    torch.save({"a": torch.ones(5000)}, file)
    assert run_dry(LOAD, file).stdout == "torch.Size([5000])\n"
    os.truncate(file, 4096)
    assert_ended(run_dry(LOAD, file), file)


def test_what_is_no_checkpoint_is_pytorch_s_to_refuse(run_dry, tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    for missing in (file, tmp_path / "nothing.pt"):
        done = run_dry(LOAD, missing)
        assert done.returncode == 1
        assert "Traceback" in done.stderr


def loaded_like(files):
    import safetensors.torch

    return [
        {name: list(each.shape) for name, each in safetensors.torch.load_file(file).items()} for file in files
    ]


def test_whole_checkpoint_is_loaded_as_it_is(elsewhere, tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(3, 5)}, tmp_path / "whole.safetensors")
    (tmp_path / "none.safetensors").write_bytes((5).to_bytes(8, "little") + b"[1,2]")
    assert elsewhere(loaded_like, [str(tmp_path / "whole.safetensors")], **DRY) == [{"a": [3, 5]}]
    with pytest.raises(AssertionError, match="SafetensorError"):
        elsewhere(loaded_like, [str(tmp_path / "none.safetensors")], **DRY)
