# SPDX-License-Identifier: Apache-2.0
"""What cannot work is one clear line, before anything else happens."""

import pytest
import torch

FAKE_TORCH = """
__version__ = "2.11.0+cpu"
class version:
    cuda = None
from spillway._autoload import run
run()
print("went on")
"""


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "SPILLWAY_EMULATE_SHEDULE",
            "late",
            "SPILLWAY_EMULATE_SHEDULE: unknown setting. The nearest name ",
        ),
        ("SPILLWAY_EMULATE_MEMORY", "1KiB", "SPILLWAY_EMULATE_MEMORY=1KiB: expected at least 2MiB"),
    ],
)
def test_a_bad_setting_ends_a_script_with_one_line(python, variable, value, said):
    done = python("-c", "import torch; print('went on')", **{variable: value})
    assert done.stderr.startswith(f"spillway-emulator: {said}")
    assert (done.stderr.count("\n"), done.stdout, done.returncode) == (1, "", 2)


def test_a_torch_without_cuda_ends_a_script_with_one_line(python, tmp_path):
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    done = python("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch")
    assert done.stderr.startswith("spillway-emulator: torch 2.11.0+cpu: ")
    assert (done.stderr.count("\n"), done.stdout, done.returncode) == (1, "", 2)


def launched(python, tmp_path, *command):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text("__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
    return python(
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from spillway.cli import main; sys.exit(main())",
        *("emulate", "--", *command),
        LD_PRELOAD=None,
        SPILLWAY_EMULATE=None,
    )


def test_the_launcher_starts_no_python_on_a_torch_without_cuda(python, tmp_path):
    done = launched(python, tmp_path, "python", "-c", "print('went on')")
    assert done.stderr.startswith("spillway emulate: torch 2.11.0+cpu: ")
    assert (done.stderr.count("\n"), done.stdout, done.returncode) == (1, "", 2)


def test_a_program_that_is_not_python_needs_no_python_s_torch(python, tmp_path):
    done = launched(python, tmp_path, "echo", "went on")
    assert (done.stdout, done.stderr, done.returncode) == ("went on\n", "", 0)


def one_device_too_far():
    with pytest.raises(torch.AcceleratorError) as raised:
        torch.zeros(1, device="cuda:5")
    return [str(raised.value).splitlines()[0], torch.zeros(2, device="cuda:1").sum().item()]


def test_a_device_out_of_range_is_pytorch_s_own_error_and_the_others_work_on(elsewhere):
    text, total = elsewhere(one_device_too_far, SPILLWAY_EMULATE_DEVICES="2")
    assert text == "CUDA error: invalid device ordinal"
    assert total == 0
