"""The experiment on memory judges what it measured; compiling is left to the experiment."""

import os
import subprocess
import sys

import pytest

from experiments import blockwise_memory_is_linear as experiment


def holds(tiled, dense):
    return [claim["holds"] for claim in experiment.judged("grad", tiled, dense)]


def test_linear_and_small_holds():
    assert holds([8.0, 16.0, 32.0], [48.0, 192.0, 768.0]) == [True, True, True]


@pytest.mark.parametrize(
    ("tiled", "dense", "wrong"),
    [
        ([8.0, 16.0, 33.0], [48.0, 192.0, 768.0], 0),  # too much
        ([2.0, 8.0, 31.0], [48.0, 192.0, 768.0], 1),  # grows with T²
        ([8.0, 16.0, 32.0], [48.0, 96.0, 192.0], 2),  # a control that passes
    ],
)
def test_what_is_not_linear_fails(tiled, dense, wrong):
    found = holds(tiled, dense)
    assert [i for i, held in enumerate(found) if not held] == [wrong]


def test_a_control_that_xla_fused_away_is_left_out():
    assert len(experiment.judged("grad", [1.0, 2.0], [0.0, 0.0])) == 2


@pytest.mark.slow
def test_quick(tmp_path):
    """In a process of its own: tests compile without the optimisation that memory depends on."""
    command = [sys.executable, "-m", "experiments", "blockwise_memory_is_linear", "--quick"]
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run([*command, "--out", str(tmp_path)], env=environment, check=False)
    assert run.returncode == 0
