"""`status` has the right word for each state, as a real API server with real controllers has shown
it.

`python -m tests.cli.status.make_recordings` makes the files anew.
"""

from pathlib import Path

import pytest

from infra.workloads import WORKLOADS
from tests.cli.status.tape import FOLDER, Replay, read, see_only_run

FILES = sorted(FOLDER.glob("*.json"))
AT_LEAST = 40
STATES = {
    *("training", "waiting", "starting", "recovering", "saving", "stopped", "failing"),
    "finished",
}
NEVER_FAIL = ("multi-pod", "lws")  # their pods belong to StatefulSets, which never fail
MOST_BYTES = 40_000  # of a file


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_state_has_its_word(path: Path) -> None:
    """`status` shows the state that was brought about in the recording, without a request that was
    not recorded. A run that ended for a fatal error is shown with the reason.
    """
    state, asked = read(path)
    found = see_only_run(Replay(asked))
    assert found.state == state, found.detail
    assert "was not recorded" not in found.detail, found.detail
    if path.stem.endswith("-fatal"):  # the reason is shown even if the pods were started again
        assert "'/data/no-such-weights' cannot be read" in found.detail


def test_recordings_are_enough_and_small() -> None:
    """There is a small recording of each kind of workload in each state: training, waiting,
    starting, recovering, saving, stopped, failing, finished, and failed for the kinds that can
    fail.
    """
    assert len(FILES) >= AT_LEAST
    states = {name: set[str]() for name in WORKLOADS}
    for path in FILES:
        assert path.stat().st_size < MOST_BYTES, path
        kind = max((name for name in WORKLOADS if path.stem.startswith(f"{name}-")), key=len)
        states[kind].add(read(path)[0])
    for kind, words in states.items():
        assert words >= STATES | (set() if kind in NEVER_FAIL else {"failed"}), kind


def test_each_kind_in_a_queue_is_recorded_while_it_gives_way() -> None:
    """Each kind that can wait in a queue has a recording in which it still saves while work of a
    higher priority takes its place. A single pod has none, because it is a Job too.
    """
    kinds = [name for name, kind in WORKLOADS.items() if kind.queued and kind.several_pods]
    assert {f"{name}-saves-and-gives-way" for name in kinds} <= {path.stem for path in FILES}
