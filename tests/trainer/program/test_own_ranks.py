"""Ranks that a program has started itself and that are not those of the run are found and named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.trainer.forked import without_torchruns_variables
from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from trainer.launch.exit_codes import ExitCode
from trainer.program.own_ranks import ranks_not_of_the_run

ALONE = "warning: the ranks are not those of the run: a rank 0 of 2 runs in this pod too"
TOO_MANY = "warning: the ranks are not those of the run: rank 0 of 2 has started a rank 0 of 8"


@contextmanager
def shell_with_a_child(
    own: str, childs: str, command: str = "sh -c 'echo up; exec sleep 3600'"
) -> Iterator[int]:
    """Start a shell and a child of it with these variables, and yield the shell's id.

    The child, which runs `command`, prints a line.
    """
    child = f"env {childs} {command}"
    variables = dict(each.split("=") for each in own.split())
    shell = subprocess.Popen(
        ["sh", "-c", f"{child} & wait"],
        env={**without_torchruns_variables(os.environ), **variables},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdout
    assert shell.stdout.readline() == b"up\n"
    try:
        yield shell.pid
    finally:
        os.killpg(shell.pid, 9)
        shell.wait()
        shell.stdout.close()


def test_rank_0_of_another_node_is_named() -> None:
    """On another node than the first one, a rank 0 of fewer ranks than the run has trains without
    the other nodes. torchrun may put the rank 0 of all ranks there.
    """
    with shell_with_a_child("", "RANK=0 WORLD_SIZE=2") as shell:
        assert ranks_not_of_the_run({shell: None}, 4).startswith("a rank 0 of 2 runs in this pod")
    for of_the_run in ("RANK=2 WORLD_SIZE=4", "RANK=0 WORLD_SIZE=4"):
        with shell_with_a_child("", of_the_run) as shell:
            assert not ranks_not_of_the_run({shell: None}, 4)


@pytest.mark.parametrize("other", ["RANK=1 WORLD_SIZE=2", "RANK=0 WORLD_SIZE=1"])
def test_rank_that_another_rank_has_started_is_named(other: str) -> None:
    """Below the process of a rank, any other rank shows that the program starts its ranks itself,
    and so is started too often.
    """
    with shell_with_a_child("RANK=0 WORLD_SIZE=2", other) as shell:
        assert "set program.per to node" in ranks_not_of_the_run({shell: 0}, 2)


@pytest.fixture
def torchrun(tmp_path: Path) -> Path:
    """Return a stand-in for torchrun, which waits with the same words in its command line."""
    made = tmp_path / "torchrun"
    made.write_text("#!/bin/sh\necho up\nsleep 3600\n")
    made.chmod(0o755)
    return made


@pytest.mark.parametrize(
    "option", ["--standalone", "--rdzv_endpoint=localhost:0", "--master-addr 127.0.0.1"]
)
def test_torchrun_that_waits_in_its_own_pod_is_named(torchrun: Path, option: str) -> None:
    """A torchrun that looks for the other pods in its own one is named while it waits, which it
    does for ten minutes and without any rank.
    """
    with shell_with_a_child("", "A=b", f"{torchrun} --tee 3 {option} a.py") as shell:
        assert ranks_not_of_the_run({shell: None}, 4).startswith(
            f"torchrun {option} looks for the other pods in its own pod, so each of them waits"
        )
    with shell_with_a_child("", "A=b", f"{torchrun} a.py --standalone") as shell:
        assert not ranks_not_of_the_run({shell: None}, 4)


def test_torchrun_below_a_rank_is_named(torchrun: Path) -> None:
    """A torchrun below a rank is named before it has started ranks: it is started too often."""
    with shell_with_a_child("RANK=0 WORLD_SIZE=2", "A=b", f"{torchrun} a.py") as shell:
        found = ranks_not_of_the_run({shell: 0}, 2)
    assert found.startswith("rank 0 of 2 has started a torchrun. If the program starts its ranks")


def test_children_of_a_rank_are_no_further_ranks() -> None:
    """Children with the variables of their rank are no further ranks, as workers of a data loader,
    nor are those without variables of a rank, or processes that have ended meanwhile.
    """
    with shell_with_a_child("RANK=0 WORLD_SIZE=2", "A=b") as shell:
        assert not ranks_not_of_the_run({shell: 0}, 2)
    with shell_with_a_child("", "RANK=none WORLD_SIZE=2") as shell:
        assert not ranks_not_of_the_run({shell: None}, 2)
    assert not ranks_not_of_the_run({shell: None}, 2)


LOOKS_OFTEN = """
import runpy
from trainer.program import own_ranks
own_ranks.LOOK_SECONDS = 0
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""
STARTS_ONE = "env RANK=0 WORLD_SIZE={} sleep 3600"


def test_pods_that_train_alone_are_said(desk: Desk) -> None:
    """A program with a launcher of its own that does not know of the other pods is named in the
    log of the second pod, once, because each pod would train for days on its own.
    """
    desk.trainer = [sys.executable, "-c", LOOKS_OFTEN]
    port = free_port()
    config = desk.config("sh", "-c", STARTS_ONE.format(2), per="node")
    nodes = [desk.start(config, node, 2, 2, port) for node in range(2)]
    desk.wait_for(r"\[node 1\] " + ALONE, 1)
    for node in nodes:
        node.terminate()
        assert node.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
    assert ALONE not in desk.log(0)
    assert desk.log(1).count(ALONE) == 1


def test_launcher_below_each_rank_is_said(desk: Desk) -> None:
    """A script that starts all ranks itself, but is started once for each rank, is named, because
    each rank of the run would be a whole training of its own.
    """
    desk.trainer = [sys.executable, "-c", LOOKS_OFTEN]
    entrypoint = desk.start(desk.config("sh", "-c", STARTS_ONE.format(8)), ranks=2)
    desk.wait_for(r"\[node 0\] " + TOO_MANY)
    entrypoint.terminate()
    assert entrypoint.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
    assert desk.log().count(TOO_MANY) == 1
