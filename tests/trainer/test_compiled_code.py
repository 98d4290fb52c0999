"""Compiled code in the folder of the run: what a new pod takes, and what goes wrong on a volume."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.gpu.place import Place
from tests.trainer.lab import CHECKOUT
from trainer.compiled_code import FOLDER, CompiledCode
from trainer.config import RunConfig
from trainer.parallel.device import Compute
from trainer.parallel.world import World

# A start in a pod of its own: what it trains, and what torch found in its caches.
_START = """
import json, sys
from pathlib import Path
from torch._dynamo.utils import counters
from tests.gpu.place import Place
place = Place("cpu", Path(sys.argv[1]))
place.root.mkdir(exist_ok=True)
shape = {"train__compile": "on", "train__keep_compiled": sys.argv[2] == "kept", "model__n_layer": 1}
run = place.config("run", **shape, train__max_steps=int(sys.argv[3]), train__decay_steps=9)
records = place.train(run)
print(json.dumps([counters["inductor"], [r["loss"] for r in records]]))
"""


# A program that compiles a function, with the file of a run whose model is compiled.
_FUNCTION = """
import json, sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from tests.gpu.place import Place
from trainer.compiled_code import CompiledCode
from trainer.parallel.device import Compute
from trainer.parallel.world import World
run = Place("cpu", Path(sys.argv[1])).config("run", train__keep_compiled=True)
compute = Compute(torch.device("cpu"), "CPU", torch.float32, True, "gloo", ())
code = CompiledCode(run, World(), compute, lambda text: print(text, file=sys.stderr))
code.take()
torch.compile(lambda x: (x * 2.0).relu())(torch.ones(8))
code.keep()
print(json.dumps([counters["inductor"], []]))
"""


def start(
    program: str, root: Path, pod: str, *more: str
) -> tuple[dict[str, int], list[float], str]:
    """Torch's counters, all losses, and what was said, of a start whose caches were empty."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(root), *more],
        cwd=CHECKOUT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(root / pod)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counters, losses = json.loads(done.stdout.splitlines()[-1])
    return counters, losses, done.stderr


@pytest.mark.slow
def test_new_pod_takes_what_was_compiled(tmp_path: Path) -> None:
    """Its caches are empty; torch finds the graph all the same, and nothing is written again."""
    first, _, said = start(_FUNCTION, tmp_path, "first")
    assert first["fxgraph_cache_miss"] == 1
    assert f"compiled code is kept in {FOLDER}/local-rank-0.bin" in said
    second, _, said = start(_FUNCTION, tmp_path, "second")
    assert second["fxgraph_cache_hit"] == 1
    assert "fxgraph_cache_miss" not in second
    assert f"compiled code was taken from {FOLDER}/local-rank-0.bin" in said
    assert "is kept" not in said


@pytest.mark.in_depth
def test_new_pod_of_a_run_trains_the_same(tmp_path: Path) -> None:
    """The whole trainer: nothing of the model is compiled again, not even for the evaluation. It
    takes minutes, because inductor makes C++ here."""
    first, _, _ = start(_START, tmp_path, "first", "kept", "3")
    second, losses, _ = start(_START, tmp_path, "second", "kept", "6")
    trial = 1  # of every start, before there is a model
    assert first["fxgraph_cache_miss"] > trial
    assert second["fxgraph_cache_miss"] == trial
    kept = (tmp_path / "runs" / "run" / FOLDER).iterdir()
    assert [path.name for path in kept] == ["local-rank-0.bin"]
    alone, whole, _ = start(_START, tmp_path / "alone", "third", "not", "6")
    assert not (tmp_path / "alone" / "runs" / "run" / FOLDER).exists()
    assert alone["fxgraph_cache_miss"] == first["fxgraph_cache_miss"]
    assert losses == whole


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    return Place("cpu", tmp_path).config("run", train__keep_compiled=True)


COMPUTE = Compute(torch.device("cpu"), "CPU", torch.float32, True, "gloo", ())


def made(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Torch has compiled graphs of these names."""
    found: Any = SimpleNamespace(inductor_artifacts=list(names))
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"code", found))


def test_one_node_writes_a_file_for_each_local_rank(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other nodes take it, and what is in it already is not written again."""
    lines: list[str] = []
    made(monkeypatch, "one")
    worlds = [World(rank, 4, rank % 2, rank // 2) for rank in range(4)]
    ranks = [CompiledCode(run, world, COMPUTE, lines.append) for world in worlds]
    for rank in ranks:
        rank.keep()
        rank.keep()
    assert sorted(path.name for path in (run.run_dir / FOLDER).iterdir()) == [
        "local-rank-0.bin",
        "local-rank-1.bin",
    ]
    assert len(lines) == 2
    made(monkeypatch, "one", "two")  # the evaluation has compiled another graph
    ranks[0].keep()
    assert len(lines) == 3


def test_damaged_file_is_made_anew(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said; the start goes on, and what it compiles takes the place of the file."""
    file = run.run_dir / FOLDER / "local-rank-0.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"nothing of torch's")
    lines: list[str] = []
    code = CompiledCode(run, World(), COMPUTE, lines.append)
    code.take()
    assert lines == [f"the compiled code in {file} is damaged, so it is made anew"]
    made(monkeypatch, "one")
    code.keep()
    assert file.read_bytes() == b"code"


def test_volume_that_refuses_the_file_ends_no_run(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.run_dir.mkdir(parents=True)
    (run.run_dir / FOLDER).write_text("a file in the place of the folder")
    lines: list[str] = []
    code = CompiledCode(run, World(), COMPUTE, lines.append)
    code.take()
    made(monkeypatch, "one")
    code.keep()
    assert len(lines) == 2
    assert "cannot be read" in lines[0]
    assert "cannot be kept" in lines[1]


@pytest.mark.parametrize(("keeps", "compiles"), [(False, True), (True, False)])
def test_nothing_is_written_where_nothing_is_to_be_kept(
    run: RunConfig, keeps: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(monkeypatch, "one")
    train = dataclasses.replace(run.train, keep_compiled=keeps)
    compute = dataclasses.replace(COMPUTE, compile=compiles)
    code = CompiledCode(dataclasses.replace(run, train=train), World(), compute, print)
    code.take()
    code.keep()
    assert not (run.run_dir / FOLDER).exists()
