"""A process that the kernel has killed for lack of memory is known as that, with what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk
from trainer.launch import memory_kills
from trainer.launch.exit_codes import ExitCode
from trainer.launch.memory_kills import MORE_MEMORY, MemoryKills
from trainer.launch.status_files import ExitReport

CGROUP_2 = "low 0\nhigh 0\nmax 31\noom 1\noom_kill {}\noom_group_kill 0\n"
CGROUP_1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
WITH_COUNTER = """
import sys
from pathlib import Path
from trainer import __main__
from trainer.launch import memory_kills
memory_kills.PLACES = (Path(sys.argv.pop(1)),)
sys.exit(__main__.main(sys.argv[1:]))
"""
KILLED = ExitReport(ExitCode.RETRYABLE, "local rank 1 was killed")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk that ends all its processes."""
    made = Desk(tmp_path)
    yield made
    made.end_all()


@pytest.fixture(params=[CGROUP_2, CGROUP_1])
def counter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The content of the kernel's file; `tmp_path / "counter"` takes its place."""
    places = (tmp_path / "none", tmp_path / "counter")
    monkeypatch.setattr(memory_kills, "PLACES", places)
    return str(request.param)


def test_kill_since_the_start_is_added_to_the_reason(counter: str, tmp_path: Path) -> None:
    """The reason says what the kernel did, and which settings give more memory."""
    (tmp_path / "counter").write_text(counter.format(2))
    kills = MemoryKills()
    (tmp_path / "counter").write_text(counter.format(3))
    reason = kills.explain(KILLED).reason
    assert reason.startswith(f"{KILLED.reason}; the kernel killed a process of this pod for lack")
    assert "memoryLimitPerRank" in MORE_MEMORY
    assert reason.endswith(MORE_MEMORY)


def test_earlier_kills_and_other_ends_are_not_explained(counter: str, tmp_path: Path) -> None:
    """What was killed before these ranks does not explain their end, and a finished run needs no
    explanation.
    """
    (tmp_path / "counter").write_text(counter.format(2))
    kills = MemoryKills()
    assert kills.explain(KILLED) == KILLED
    (tmp_path / "counter").write_text(counter.format(3))
    for code in (ExitCode.DONE, ExitCode.PREEMPTED, ExitCode.FATAL):
        report = ExitReport(code, "it has ended")
        assert kills.explain(report) == report


def test_machine_without_the_counter_is_no_error(counter: str) -> None:
    """Without a container there may be no such file."""
    assert MemoryKills().explain(KILLED) == KILLED


def test_reason_of_a_node_has_the_explanation(desk: Desk) -> None:
    """The last line of the node, which `./disttrain status` shows, says it. Here the program writes
    the counter itself before it is killed.
    """
    counter = desk.root / "counter"
    counter.write_text(CGROUP_2.format(0))
    desk.trainer = [sys.executable, "-c", WITH_COUNTER, str(counter)]
    kill = f"echo 'oom_kill 1' > {counter}; kill -9 $$"
    assert desk.run(desk.config("sh", "-c", kill, train={"max_restarts": 0})) == 75
    last = desk.log().splitlines()[-1]
    assert "rank 0 was killed by SIGKILL: by the kernel for lack of memory, or by somebody" in last
    assert last.endswith(MORE_MEMORY)
