"""Spare processes, which have imported torch before they are needed as ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cli.shell.rank_program import variables_in
from tests.trainer.forked import CHECKOUT, Forked
from tests.trainer.lab import Lab, assert_bitwise_equal, free_port, last_step, wait_for
from tests.trainer.process_tree import is_running, name_of, processes_below, ranks_below
from trainer.config import RunConfig
from trainer.launch import killing
from trainer.launch.exit_codes import ExitCode
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.spare import WAITS_NAME, Spares
from trainer.launch.status_files import READY_DIR_VARIABLE
from trainer.launch.worker import set_up_torch
from trainer.parallel.world import World

ENDLESS = {
    "train__max_steps": 100_000,
    "train__decay_steps": 200,
    "train__spare_processes": True,
    "checkpoint__interval": 10,
}
PROGRAM = """
import os, sys
from cli.shell.rank_program import variables_of
from trainer.launch import spare
print("imported with a warning", file=sys.stderr)
spare.NEEDED = ()
spare.become_rank_when_needed()
names = ("RANK", "ADDED", "CHANGED", "REMOVED")
print(os.getpid(), *(os.environ.get(name) for name in names), sys.stdin.read())
print(*(variables_of(str(os.getpid())).get(name) for name in names[:3]))
"""

# A GPU seems to be there, and whatever starts something on it raises an error.
IMPORTS_BESIDE_A_GPU = """
import importlib, torch
def refuse(*arguments):
    raise AssertionError("a GPU is touched")
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda._lazy_init = refuse
from trainer.launch.spare import NEEDED
for module in NEEDED:
    importlib.import_module(module)
"""

NAMED = ["3 ä", " after"]  # the variables as `variables_of` reads them


def spares_below(process: Forked) -> list[int]:
    """Return the pids of the spare processes that wait below this entrypoint."""
    return [pid for pid in processes_below(process.pid) if name_of(pid) == WAITS_NAME]


def wait_for_spares(lab: Lab, process: Forked, count: int) -> list[int]:
    """Wait until `count` spare processes have imported what they need, and return their pids."""
    wait_for(f"{count} spares", lambda: len(spares_below(process)) == count, 60, lab)
    return spares_below(process)


@contextmanager
def small_spares(count: int) -> Iterator[Spares]:
    """Yield `count` spare processes of a program that imports nothing more, and end them
    afterwards.
    """
    spares = Spares([sys.executable, "-c", PROGRAM], count)
    try:
        yield spares
    finally:
        spares.close()


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function that makes the environment of a rank from this process's and the given
    variables.
    """
    ours = {LIFELINE_VARIABLE: "stdin", READY_DIR_VARIABLE: str(tmp_path / "status")}
    return lambda **more: {**os.environ, "PYTHONPATH": str(CHECKOUT), **ours, **more}


def started(spares: Spares, tmp_path: Path, variables: dict[str, str]) -> tuple[int, list[str]]:
    """Start a rank with those variables; returns its pid and the lines that it has printed."""
    output = tmp_path / "output"
    with output.open("w") as file, subprocess.Popen(["echo", "in"], stdout=subprocess.PIPE) as echo:
        assert echo.stdout is not None
        process = spares.start(variables, echo.stdout.fileno(), file.fileno())
        assert process.wait(60) == 0, output.read_text()
    return process.pid, output.read_text().splitlines()


def test_spare_that_fails_says_why(
    tmp_path: Path, environment: Callable[..., dict[str, str]]
) -> None:
    """The reason why a spare process fails, here a status folder that cannot be written, is in the
    rank's output. Otherwise the run's log would say only that the rank ended with status 1 without
    a reason.
    """
    (tmp_path / "status").write_text("a file where the folder should be\n")
    output = tmp_path / "output"
    with small_spares(1) as spares, output.open("w") as file:
        spares.prepare(environment())
        rank = spares.start(environment(RANK="3"), file.fileno(), file.fileno())
        assert rank.wait(60) == 1
    text = output.read_text()
    assert "imported with a warning" in text
    assert "FileExistsError" in text or "NotADirectoryError" in text, text


def test_spare_becomes_the_rank_it_is_asked_for(
    tmp_path: Path, environment: Callable[..., dict[str, str]]
) -> None:
    """A spare process that becomes a rank has that rank's variables, standard input and output, and
    the rank's output begins with what it printed before. `./disttrain shell --rank` finds its
    variables.
    """
    with small_spares(1) as spares:
        spares.prepare(environment(CHANGED="before", REMOVED="x"))
        (waiting,) = spares.pids()
        variables = environment(RANK="3", ADDED="ä\n", CHANGED="after")
        pid, lines = started(spares, tmp_path, variables)
        assert pid == waiting
        assert spares.pids() == []
    assert lines == ["imported with a warning", f"{pid} 3 ä", " after None in", "", *NAMED]


def test_rank_without_a_spare_is_the_same(
    tmp_path: Path, environment: Callable[..., dict[str, str]]
) -> None:
    """A rank gets the same variables, input and output when there is no spare process, or only one
    that has died.
    """
    variables = environment(RANK="3", ADDED="ä\n", CHANGED="after")
    for count in (0, 1):
        with small_spares(count) as spares:
            spares.prepare(environment(CHANGED="before", REMOVED="x"))
            before = spares.pids()
            for spare in before:
                os.kill(spare, signal.SIGKILL)
                os.waitid(os.P_PID, spare, os.WEXITED | os.WNOWAIT)
            pid, lines = started(spares, tmp_path, variables)
            assert pid not in before
        assert lines == ["imported with a warning", f"{pid} 3 ä", " after None in", "", *NAMED]


def test_what_a_spare_imports_touches_no_gpu() -> None:
    """The imports of a spare process do not touch a GPU. Otherwise it would hold memory of a GPU
    that a rank beside it needs.
    """
    program = [sys.executable, "-c", IMPORTS_BESIDE_A_GPU]
    done = subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dead_spare_is_replaced_and_all_end(environment: Callable[..., dict[str, str]]) -> None:
    """`prepare` starts the spare processes that are missing and no more, and `close` ends all that
    wait.
    """
    with small_spares(2) as spares:
        spares.prepare(environment())
        first = spares.pids()
        os.kill(first[0], signal.SIGKILL)
        os.waitid(os.P_PID, first[0], os.WEXITED | os.WNOWAIT)
        spares.prepare(environment())
        second = spares.pids()
        assert len(second) == 2
        assert second[0] == first[1]
    assert not any(map(is_running, second))


def test_spare_that_cannot_be_killed_holds_up_nothing(
    environment: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` waits only briefly for a spare process that does not end when it is killed. A process
    that waits for a dead NFS server may never end.
    """
    monkeypatch.setattr(killing, "KILLED_SECONDS", 0.01)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]  # it does not read the socket
    spares = Spares(command, 1)
    spares.prepare(environment())
    killed: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as stuck:
        stuck.setattr(subprocess.Popen, "kill", lambda process: killed.append(process))
        spares.close()
    assert [process.poll() for process in killed] == [None]
    for process in killed:
        process.kill()
        process.wait(60)


@pytest.mark.slow
def test_killed_rank_comes_back_as_a_spare(lab: Lab) -> None:
    """The ranks of the second round are the processes that waited in the first one, and the run is
    the same to the last bit. If a spare process was killed, too, an ordinary process takes its
    place.
    """
    run = lab.config(run_name="killed", **ENDLESS)
    node = lab.start_entrypoint(run, 0, 1, 2, free_port())
    wait_for("20 steps", lambda: last_step(run) >= 20, 60, lab)
    spares, ranks = wait_for_spares(lab, node, 2), ranks_below(node.pid)
    os.kill(ranks[0], signal.SIGKILL)
    are_ranks = lambda: sorted(ranks_below(node.pid)) == sorted(spares)  # noqa: E731
    wait_for("the spares to be the ranks", are_ranks, 60, lab)
    wait_for("steps of the second round", (lab.ready_dir(0) / "ready").exists, 60, lab)
    told = [variables_in(lab.ready_dir(0) / f"variables-{pid}") for pid in ranks_below(node.pid)]
    assert [(each["RANK"], each["WORLD_SIZE"]) for each in told] == [("0", "2"), ("1", "2")]
    new = wait_for_spares(lab, node, 2)
    assert not set(new) & set(spares)
    for pid in (new[0], spares[0]):
        os.kill(pid, signal.SIGKILL)

    def has_one_spare() -> bool:
        found = ranks_below(node.pid)
        return len(found) == 2 and set(found) & {*new, *spares} == {new[1]}

    wait_for("a spare and an ordinary process as ranks", has_one_spare, 60, lab)
    wait_for("steps of the third round", (lab.ready_dir(0) / "ready").exists, 60, lab)
    node.terminate()
    assert node.wait(60) == ExitCode.PREEMPTED
    assert not any(map(is_running, (*spares, *new)))
    whole = lab.config(run_name="whole", **{**ENDLESS, "train__max_steps": last_step(run)})
    lab.train(whole, 2)
    assert_bitwise_equal(whole, run)


def wait_for_end(lab: Lab, pids: Sequence[int]) -> None:
    """Wait until none of these processes runs any more."""
    wait_for("the spares to end", lambda: not any(map(is_running, pids)), 60, lab)


def test_spares_end_with_a_killed_entrypoint(lab: Lab) -> None:
    run = lab.config(**ENDLESS)
    node = lab.start_entrypoint(run, 0, 1, 1, free_port())
    spares = wait_for_spares(lab, node, 1)
    node.kill()
    wait_for_end(lab, spares)


def test_pod_of_a_finished_run_has_no_spares(lab: Lab) -> None:
    """The pod of a finished run ends its spare processes. It may stay for hours, and needs no
    memory for ranks that will not come.
    """
    run, port = lab.config(train__max_steps=5, train__spare_processes=True), free_port()
    nodes = [lab.start_entrypoint(run, node, 2, 1, port) for node in range(2)]
    wait_for("both to hold", lambda: lab.logs().count("holding until SIGTERM") == 2, 60, lab)
    assert [processes_below(node.pid) for node in nodes] == [[node.pid] for node in nodes]


def test_run_without_spare_processes_has_none(lab: Lab) -> None:
    run = lab.config(**{**ENDLESS, "train__spare_processes": False})
    node = lab.start_entrypoint(run, 0, 1, 2, free_port())
    wait_for("the pod to be ready", (lab.ready_dir(0) / "ready").exists, 60, lab)
    assert processes_below(node.pid)[1:] == ranks_below(node.pid)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_threads_are_those_of_the_environment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    """A rank uses as many threads as its variable `OMP_NUM_THREADS` says. OpenMP reads that
    variable when torch is imported, which is before a spare process knows its own variables.
    """
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    try:
        set_up_torch(RunConfig.from_mapping(lab.mapping()).train, World())
        assert torch.get_num_threads() == int(threads)
    finally:
        torch.set_num_threads(before)
