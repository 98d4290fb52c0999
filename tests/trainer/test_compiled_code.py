"""Compiled code in the folder of the run: what a new pod takes from it, and what can go wrong
there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.gpu.compiled import a_new_pod_takes_the_compiled_code
from tests.gpu.new_pod import start_in_new_pod
from tests.gpu.place import Place
from tests.trainer.lab import CHECKOUT, Lab, NoSignals
from trainer.compiled_code import FOLDER, MOST_FILES, CompiledCode
from trainer.config import RunConfig
from trainer.parallel.device import Compute, choose_compute
from trainer.parallel.world import World
from trainer.train import train

# A program that compiles a function, with the file of a run whose model is compiled.
_FUNCTION = """
import json, sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from tests.gpu.compiled import a_new_pod_takes_the_compiled_code
from tests.gpu.new_pod import start_in_new_pod
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
print(json.dumps(counters["inductor"]))
"""


def start(root: Path, pod: str) -> tuple[dict[str, int], str]:
    """Run `_FUNCTION` in a process with empty caches; return torch's counters and what was said."""
    done = subprocess.run(
        [sys.executable, "-c", _FUNCTION, str(root)],
        cwd=CHECKOUT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(root / pod)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_new_pod_takes_what_was_compiled(tmp_path: Path) -> None:
    """A new pod, whose caches are empty, finds the compiled graph in the run's folder, and writes
    nothing again.
    """
    first, said = start(tmp_path, "first")
    assert first["fxgraph_cache_miss"] == 1
    assert f"compiled code is kept in {FOLDER}/local-rank-0-1.bin" in said
    second, said = start(tmp_path, "second")
    assert second["fxgraph_cache_hit"] == 1
    assert "fxgraph_cache_miss" not in second
    assert f"compiled code was taken from {FOLDER}/local-rank-0-1.bin" in said
    assert "is kept" not in said


@pytest.mark.in_depth
def test_new_pod_of_a_run_trains_the_same(tmp_path: Path) -> None:
    """A new pod of a real run compiles nothing of the model again, not even for the evaluation, and
    has the losses of a run without kept code. The test takes minutes, because inductor makes C++
    here.
    """
    pods = Place("cpu", tmp_path)
    assert a_new_pod_takes_the_compiled_code(pods)
    kept = (tmp_path / "runs" / "run" / FOLDER).iterdir()
    assert sorted(path.name for path in kept) == ["local-rank-0-1.bin", "local-rank-0-2.bin"]
    _, losses = start_in_new_pod(pods, "third", keeps=True, steps=9)
    alone = Place("cpu", tmp_path / "alone")
    _, whole = start_in_new_pod(alone, "fourth", keeps=False, steps=9)
    assert not (alone.root / "runs" / "run" / FOLDER).exists()
    assert losses == whole


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    """Return a run that keeps its compiled code."""
    return Place("cpu", tmp_path).config("run", train__keep_compiled=True)


COMPUTE = Compute(torch.device("cpu"), "CPU", torch.float32, True, "gloo", ())


def made(monkeypatch: pytest.MonkeyPatch, *names: str, content: bytes = b"") -> None:
    """Let torch seem to have compiled graphs of these names, and give out `content` for them."""
    found: Any = SimpleNamespace(inductor_artifacts=list(names))
    code = content or names[0].encode()
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (code, found))


def test_one_node_writes_a_file_for_each_local_rank(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one node writes the compiled code, one file for each local rank, and code that is in a
    file already is not written again.
    """
    lines: list[str] = []
    made(monkeypatch, "one")
    worlds = [World(rank, 4, rank % 2, rank // 2) for rank in range(4)]
    ranks = [CompiledCode(run, world, COMPUTE, lines.append) for world in worlds]
    for rank in ranks:
        rank.keep()
        rank.keep()
    assert sorted(path.name for path in (run.run_dir / FOLDER).iterdir()) == [
        "local-rank-0-1.bin",
        "local-rank-1-1.bin",
    ]
    assert len(lines) == 2
    made(monkeypatch, "one", "two")  # the evaluation has compiled another graph
    ranks[0].keep()
    assert len(lines) == 3


def test_new_pod_takes_every_file_kept(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new pod takes all files, so that it has the code of the training pass, too. A stand-in for
    torch 2.8 and later reads out of a file only what was made since the save before it.
    """
    taken: list[str] = []

    def load(content: bytes) -> Any:
        taken.append(content.decode())
        return SimpleNamespace(inductor_artifacts=[content.decode()])

    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", load)
    first = CompiledCode(run, World(), COMPUTE, print)
    made(monkeypatch, "train")
    first.keep()
    made(monkeypatch, "train", "evaluate", content=b"evaluate")
    first.keep()
    lines: list[str] = []
    second = CompiledCode(run, World(), COMPUTE, lines.append)
    second.take()
    assert taken == ["train", "evaluate"]
    second.keep()
    assert len(lines) == 2, "nothing new was made, and yet a file was written"


def test_folder_of_code_stays_small(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has at most `MOST_FILES` files, and a message tells when it is full, as when every
    start makes other code.
    """
    lines: list[str] = []
    loaded: Any = SimpleNamespace(inductor_artifacts=["of another start"])
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda _: loaded)
    for start in range(MOST_FILES + 2):
        code = CompiledCode(run, World(), COMPUTE, lines.append)
        code.take()
        made(monkeypatch, f"of start {start}")
        code.keep()
    assert len(list((run.run_dir / FOLDER).iterdir())) == MOST_FILES
    assert f"{MOST_FILES} files" in lines[-1]


def test_damaged_file_is_made_anew(run: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file gives a message, and what the start compiles replaces it."""
    file = run.run_dir / FOLDER / "local-rank-0-1.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"nothing of torch's")
    lines: list[str] = []
    code = CompiledCode(run, World(), COMPUTE, lines.append)
    code.take()
    assert lines == [f"the compiled code in {file} is damaged, so it is made anew"]
    made(monkeypatch, "one")
    code.keep()
    assert file.read_bytes() == b"one"


def test_volume_that_refuses_the_file_ends_no_run(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on with a message if its compiled code can be neither read nor kept, and keeps it
    once the volume allows that.
    """
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
    (run.run_dir / FOLDER).unlink()  # the volume works again
    code.keep()
    assert "is kept" in lines[2]


def test_first_code_is_kept_before_waits_are_bound(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of the first step is written while the other ranks still wait as long as at a start.
    A volume may take longer than `train.timeout_seconds`.
    """
    order = list[str]()
    monkeypatch.setattr(CompiledCode, "keep", lambda self, _=None: order.append("keep"))  # pyright: ignore
    monkeypatch.setattr(World, "bound_waits", lambda self, seconds: order.append("bound"))  # pyright: ignore
    run = lab.config(train__max_steps=2, train__warmup_steps=1)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert order[:2] == ["keep", "bound"]


def test_later_code_is_kept_while_ranks_ask(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once waits are bound, the file is written beside the exchanges in which the other ranks ask
    whether that has ended. They would wait in one collective for at most `train.timeout_seconds`,
    which a volume may take. Ranks that write nothing exchange too.
    """
    file, said, lines = run.run_dir / FOLDER / "local-rank-0-1.bin", list[str](), list[str]()

    class Ranks(World):
        """The two ranks, each of which works while the other one asks."""

        def together_while_asking(self, work: Callable[[], str]) -> list[str]:
            assert not file.exists() or self.rank == 1
            said.append(work())
            return [*said, ""][:2]

    made(monkeypatch, "of the evaluation")
    for world in (Ranks(0, 2, 0, 0), Ranks(1, 2, 0, 1)):
        CompiledCode(run, world, COMPUTE, lines.append).keep(world)
    assert file.exists()
    assert said[1:] == [""]
    assert lines == said[:1]
    assert "is kept" in lines[0]


def test_evaluation_keeps_code_with_all_ranks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an evaluation, code is kept in the way in which ranks with bound waits do it."""
    kept = list[bool]()
    monkeypatch.setattr(CompiledCode, "keep", lambda _, among=None: kept.append(among is not None))  # pyright: ignore
    run = lab.config(train__max_steps=2, train__warmup_steps=1)
    train(run, World(), choose_compute(run.train, 0), NoSignals(), lambda: None)
    assert kept[:1] == [False]
    assert set(kept[1:]) == {True}


@pytest.mark.parametrize(("keeps", "compiles"), [(False, True), (True, False)])
def test_nothing_is_written_where_nothing_is_to_be_kept(
    run: RunConfig, keeps: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written without `train.keep_compiled` or without compilation."""
    made(monkeypatch, "one")
    train = dataclasses.replace(run.train, keep_compiled=keeps)
    compute = dataclasses.replace(COMPUTE, compile=compiles)
    code = CompiledCode(dataclasses.replace(run, train=train), World(), compute, print)
    code.take()
    code.keep()
    assert not (run.run_dir / FOLDER).exists()
