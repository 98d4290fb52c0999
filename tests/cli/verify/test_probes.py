"""The programs that `verify` sends to pods, run here as the pods run them."""

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.verify import pod_probe, run_probe

# GPU 0 is busy when it is asked for the second time, and at no other time.
SMI = """#!/bin/sh
asked=$(cat "$0.asked" 2>/dev/null)x
echo "$asked" >"$0.asked"
case $asked in xx) busy=97 ;; *) busy=3 ;; esac
echo "0, NVIDIA H100 80GB HBM3, 9.0, $busy, 71234"
echo "1, NVIDIA H100 80GB HBM3, 9.0, [N/A], 71234"
"""


def answer(program: Any, *words: str, **variables: str) -> dict[str, Any]:
    """Return what a program answers, run by its text alone with these words and variables."""
    done = subprocess.run(
        [sys.executable, "-c", Path(program.__file__).read_text(), *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def checkpoint(run: Path, step: int) -> Path:
    """Make a complete checkpoint and return its folder."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    content = os.urandom(1000)
    (folder / "model-00000.bin").write_bytes(content)
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"files": {"model-00000.bin": entry}}))
    return folder


def test_pod_probe_shows_gpus_and_their_highest_load(tmp_path: Path) -> None:
    """The program in a pod reports the GPUs with their load, torch, the network interfaces and
    NCCL's variables, and no other variable of the pod. nvidia-smi is a stand-in.
    """
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    given = {"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1", "OTHER_SECRET": "hidden"}
    seen = answer(pod_probe, "2", PATH=path, **given)
    assert [(gpu["capability"], gpu["busy_percent"]) for gpu in seen["gpus"]] == [
        ("9.0", 97),
        ("9.0", 0),
    ]
    assert seen["gpu_problem"] == seen["torch_problem"] == ""
    assert seen["torch"]["version"]
    assert seen["environment"]["NCCL_DEBUG"] == "INFO"
    assert seen["environment"]["CUDA_LAUNCH_BLOCKING"] == "1"
    assert "hidden" not in json.dumps(seen)
    assert "lo" in seen["interfaces"]
    assert seen["shared_memory_bytes"] > 0
    assert seen["pinned_memory_bytes"] == resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def test_pod_probe_says_what_it_could_not_ask(tmp_path: Path) -> None:
    """Without nvidia-smi the program says so if GPUs are expected, and nothing if not."""
    seen = answer(pod_probe, "1", PATH=str(tmp_path))
    assert seen["gpu_problem"] == "there is no nvidia-smi"
    seen = answer(pod_probe, "0", PATH=str(tmp_path))
    assert seen["gpu_problem"] == seen["computed"] == ""


def test_pod_probe_lets_torch_compute_when_asked() -> None:
    """If asked, the program lets torch compute on each device. On a machine without a GPU that is
    the CPU.
    """
    seen = answer(pod_probe, "0", "compute")
    assert re.fullmatch(r"2\.\S+", seen["computed"]), seen
    assert seen["compute_problem"] == ""


WRONG_TORCH = """
__version__ = "2.7.1"
class cuda:
    device_count = staticmethod(lambda: 2)
class Product:
    def __init__(self, device): self.device = device
    def __matmul__(self, other): return self
    def __ne__(self, other): return self
    def sum(self): return 3 if self.device == "cuda:1" else 0
def ones(*shape, device): return Product(device)
"""


def test_pod_probe_names_the_device_that_computes_wrongly(tmp_path: Path) -> None:
    """A device with a wrong product is named. A module that stands in for torch computes wrongly on
    the second of two GPUs.
    """
    (tmp_path / "torch.py").write_text(WRONG_TORCH)
    seen = answer(pod_probe, "0", "compute", PYTHONPATH=str(tmp_path))
    assert "cuda:1: 3 of 65536 products of ones are wrong" in seen["compute_problem"]
    assert seen["computed"] == ""


def test_run_probe_reads_losses_and_the_newest_checkpoint(tmp_path: Path) -> None:
    """The program that reads the volume reports the losses, the newest checkpoint and the results
    of the checks at the start. A step that was made twice counts with its later loss.
    """
    lines = ['{"step": 1, "loss": 4.0}', '{"step": 2, "loss": 3.5}', '{"step": 2, "loss": 3.4}']
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 3, "lo']))
    (tmp_path / "smoke-test.json").write_text('{"world_size": 3}')
    (tmp_path / "volume-check.json").write_text('{"nodes": []}')
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 20)
    seen = answer(run_probe, str(tmp_path))
    assert seen["losses"] == [[1, 4.0], [2, 3.4]]
    assert seen["smoke_test"] == {"world_size": 3}
    assert seen["volume_check"] == {"nodes": []}
    found = seen["checkpoint"]
    assert (found["step"], found["files"], found["bytes"], found["problem"]) == (20, 1, 1000, "")


def test_run_probe_finds_the_checkpoint_of_the_highest_step(tmp_path: Path) -> None:
    """The newest checkpoint is that of the highest step, also where its name has a digit more. A
    folder that has no checkpoint's name is not looked at.
    """
    for step in (99_999_999, 100_000_000):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoints/step-of-somebody-else").mkdir()
    assert answer(run_probe, str(tmp_path))["checkpoint"]["step"] == 100_000_000


def test_run_probe_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    """A run with an empty folder has no losses, no checkpoint and no results."""
    assert answer(run_probe, str(tmp_path)) == {
        "losses": [],
        "checkpoint": None,
        "smoke_test": None,
        "volume_check": None,
    }


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model-00000.bin").write_bytes(b"x" * 1000), "size and sha256"),
        (lambda folder: (folder / "model-00000.bin").unlink(), "model-00000.bin is missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json is damaged"),
    ],
)
def test_run_probe_names_the_damage(tmp_path: Path, damage: Any, words: str) -> None:
    """A damaged checkpoint is reported with the file and what is wrong with it."""
    damage(checkpoint(tmp_path, 10))
    assert words in answer(run_probe, str(tmp_path))["checkpoint"]["problem"]
