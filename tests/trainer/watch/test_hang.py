"""Which rank holds up the others, from where each rank was seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.watch.rank_states import four
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.launch.stall import StallTeller
from trainer.watch import hang
from trainer.watch.beat import BEAT, Beat, Phase, read_beat
from trainer.watch.dead_links import DeadLinks, dead_links
from trainer.watch.hang import Hang, RankState, from_text, to_text
from trainer.watch.stack import ask_for_stack, place_in

STACK = """\
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/app/trainer/data/prefetch.py", line 60 in _run

Current thread 0x00007f2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 824 in _engine_run_backward
  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 648 in backward
  File "/app/trainer/train.py", line 169 in backward_of_global_batch
  File "/app/trainer/train.py", line 241 in _train
"""  # noqa: E501


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"process": "T", "place": ""},
            "rank 2 on node 1 does not answer, state T (stopped); it was last in the forward and "
            "backward pass of step 812; ranks 0, 1, 3 wait for it in the sum of the gradients of "
            "step 812",
        ),
        (
            {"phase": Phase.DATA, "waits": False, "place": "trainer/data/gather.py:30 (gather)"},
            "rank 2 on node 1 is in data loading of step 812, at trainer/data/gather.py:30 "
            "(gather); ranks 0, 1, 3 wait",
        ),
        (
            {"phase": Phase.DATA, "waits": False, "process": "D", "place": ""},
            "rank 2 on node 1 is in data loading of step 812, and does not answer, state D "
            "(waits for a disk or a device); ranks 0, 1, 3 wait",
        ),
        (
            {"phase": Phase.AGREEMENT, "place": "trainer/parallel/world.py:150 (sum)"},
            "rank 2 on node 1 has left out a collective, or its messages are lost: it is in a "
            "collective of the agreement after the update of step 812 already, at "
            "trainer/parallel/world.py:150 (sum); ranks 0, 1, 3 wait for it in "
            "the sum of the gradients of step 812",
        ),
        (
            {"step": 813, "phase": Phase.PASSES},
            "rank 2 on node 1 has left out a collective, or its messages are lost: it is in the "
            "sum of the gradients of step 813 already",
        ),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(changes: dict[str, object], words: str) -> None:
    """The rank that the others wait for is named with its state, its phase, its step and its line
    of code.
    """
    states = four(**changes)
    assert [state.rank for state in Hang(states).culprits] == [2]
    assert Hang(states).describe(17.4).startswith(f"no step for 17 s: {words}")
    assert from_text(to_text(states)) == states


def test_where_all_wait_alike_nobody_is_blamed() -> None:
    """No rank is blamed if all wait in the same place. Nodes that did not say where their ranks are
    are named.
    """
    states = four()
    assert Hang(states).culprits == []
    assert "none of them is to blame; look at the network" in Hang(states).describe(20)
    assert Hang(four(phase=Phase.AGREEMENT), [2]).culprits == []
    with_missing = Hang(states[:2], [1]).describe(20)
    assert with_missing == (
        "no step for 20 s: node(s) 1 did not say where their ranks are; ranks 0, 1 wait in the sum "
        "of the gradients of step 812"
    )


@pytest.mark.parametrize("text", ["", "[1]", "{}x", '[{"rank": 1}]', to_text(four(phase=99))])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="says nothing about ranks"):
        from_text(text)


def test_the_place_is_the_main_threads_innermost_line_and_ours() -> None:
    """The place of a rank is the innermost line of the thread that is asked, and the innermost line
    of our own code that has called it.
    """
    assert place_in(STACK) == (
        "torch/autograd/graph.py:824 (_engine_run_backward), called from "
        "app/trainer/train.py:169 (backward_of_global_batch)"
    )
    assert place_in("\n".join(STACK.splitlines()[:3])).startswith("lib/python3.11/threading.py:320")
    assert place_in("") == ""


def test_what_a_rank_tells_is_read_by_another_process(tmp_path: Path) -> None:
    """The step, phase and wait that a rank writes into its heartbeat can be read from the file."""
    beat, path = Beat(), tmp_path / "beat-0"
    assert read_beat(path) is None
    beat.at(Phase.DATA, 3)
    beat.share(path)
    beat.at(Phase.PASSES, 7)
    beat.enter()
    seen = read_beat(path)
    assert seen is not None
    assert (seen.step, seen.phase, seen.waits) == (7, Phase.PASSES, True)
    beat.leave()
    later = read_beat(path)
    assert later is not None
    assert later.count > seen.count
    assert not later.waits
    assert BEAT is not beat


def test_a_process_that_waits_in_c_answers_with_its_line(tmp_path: Path) -> None:
    """A process that waits in C code, and so runs no Python, answers with its line of Python."""
    path = tmp_path / "stack-0"
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from trainer.watch.stack import answer_with_stack\n"
        f"answer_with_stack(Path({str(path)!r}))\n"
        "lock = threading.Lock(); lock.acquire(); print('ready', flush=True)\n"
        "def stuck(): lock.acquire()\n"
        "stuck()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 60
        while not place_in(path.read_text()).endswith("(stuck)"):
            assert time.monotonic() < deadline, path.read_text()
            ask_for_stack(process.pid, path)
            os.sched_yield()
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)


def test_stall_asks_once_for_dead_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message and the event of a hang come from one and the same look at the dead links."""
    asked, said, told = list[int](), list[str](), list[Any]()

    def counting(states: Sequence[RankState], away: Sequence[int]) -> DeadLinks:
        asked.append(len(states))
        return dead_links(states, away)

    monkeypatch.setattr(hang, "dead_links", counting)
    events = EventLog(None, said.append)
    monkeypatch.setattr(events, "write", lambda name, **values: told.append((name, values["rank"])))
    StallTeller(said.append, events).tell(four(process="T", place=""), 17)
    assert asked == [4]
    assert [line.partition(":")[0] for line in said] == ["no step for 17 s"]
    assert told == [(Name.HANG, 2)]
