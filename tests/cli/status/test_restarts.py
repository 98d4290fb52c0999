"""`status` counts the restarts of a run of every kind: the second one is not shown as the first.

The states are recordings of a real API server. The second loss repeats the lines of the first one
with the next number, as the launcher counts it (tests/trainer/launch/test_restart_count.py tests
real ones).
"""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from infra.workloads import WORKLOADS
from tests.cli.status.tape import FOLDER, Asked, Replay, read, see_only_run
from trainer.launch.pod_failures import AFTER_FAILURE, WITHOUT_A_WORD

LOSS = re.compile(r"(.* training stopped: .*\(restart )(\d+)( of 10 .*)")
BEGIN = "2026-11-25T08:00:00Z"
POD_RESTART = f"{AFTER_FAILURE}{WITHOUT_A_WORD} (pod restart 2 of 3 without a newer checkpoint)"


def is_log(asked: Asked) -> bool:
    """Whether this request asked for a log."""
    return asked.question.partition("?")[0].endswith("/log")


def with_logs(asked: list[Asked], change: Callable[[list[str]], list[str]]) -> Replay:
    """Return the recording with other lines of its pods."""
    changed = [
        replace(each, text="\n".join(change(each.text.splitlines()))) if is_log(each) else each
        for each in asked
    ]
    return Replay(changed)


def lost_again(lines: list[str]) -> list[str]:
    """Return the lines of a run that began another round after its first loss, and was lost once
    more.
    """
    found = list[str]()
    for line in lines:
        found.append(line)
        if loss := LOSS.fullmatch(line):
            at, node = line.split(" ", 2)[0], line.split(" [", 1)[1].split("]")[0]
            found.append(f"{at} [{node}] round 2: 2 node(s) x 1 rank(s), store at 10.0.0.1:1")
            found.append(f"{loss[1]}{int(loss[2]) + 1}{loss[3]}")
    return found


@pytest.mark.parametrize("kind", WORKLOADS)
def test_second_loss_of_ranks_is_restart_two(kind: str) -> None:
    """The second loss of ranks is shown as restart 2."""
    _, asked = read(FOLDER / f"{kind}-recovers.json")
    first = see_only_run(Replay(asked))
    assert (first.state, "(restart 1 of 10 without" in first.detail) == ("recovering", True)
    found = see_only_run(with_logs(asked, lost_again))
    assert found.state == "recovering"
    assert re.findall(r"restart (\d+) of (\d+)", found.detail) == [("2", "10")]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_second_lost_pod_is_pod_restart_two(kind: str) -> None:
    """The second loss of a pod is shown as pod restart 2. Only the third pod says so, before its
    ranks are there, and no other pod knows of it.
    """
    _, asked = read(FOLDER / f"{kind}-starts.json")
    assert see_only_run(Replay(asked)).state == "starting"

    def begun_anew(lines: list[str]) -> list[str]:
        is_node_0 = not any(" [node 1] " in line for line in lines)
        return [f"{BEGIN} [node 0] {POD_RESTART}", *lines] if is_node_0 else lines

    found = see_only_run(with_logs(asked, begun_anew))
    assert (found.state, found.detail) == ("recovering", POD_RESTART.removeprefix(AFTER_FAILURE))
