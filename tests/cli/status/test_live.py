"""`status --watch` on a terminal, where the screen is drawn in place."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fcntl import ioctl
from io import StringIO
from struct import pack

import pytest
from rich.console import Console

from cli.status.judge import RunStatus
from cli.status.live import drawing, is_possible, watch
from cli.status.node_findings import NodeFinding
from cli.status.platform_status import PlatformStatus
from cli.status.progress import Progress
from cli.status.snapshot import Snapshot
from cli.status.storage import Claim, bound_lines
from tests.unit.stacks import PROJECT

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RUN = RunStatus(
    "organization/disttrain/dev",
    "disttrain",
    "Job train-singlepod",
    2,
    "training",
    progress=Progress(step=40, of=100, loss="2.5", tokens_per_second="900", eta="1m", mfu="31%"),
)
LOST = RunStatus(
    "organization/disttrain/other",
    "disttrain",
    "StatefulSet train-multipod",
    2,
    "stalled",
    "no step is reported any more",
    NOW - timedelta(minutes=7),
)
SEEN = Snapshot(PlatformStatus(2, ("n2",), 4, 2), (RUN, LOST), "")
LIMIT_SECONDS = 60.0
# The real loop. Each snapshot is one more step; the third one finds no cluster, and the sixth one
# no kubeconfig.
WATCH = """
from datetime import UTC, datetime
from rich.console import Console
from cli.endings import end_in_order
from cli.status.live import watch
from cli.status.snapshot import Snapshot
from infra.kube.errors import UnreachableError
from tests.cli.status.test_live import NOW, RUN, SEEN
from dataclasses import replace
end_in_order()
taken = []
def take():
    taken.append(1)
    if len(taken) == 3:
        raise UnreachableError("the line was cut")
    if len(taken) == 6:
        raise ValueError("the kubeconfig cannot be read")
    run = replace(RUN, progress=replace(RUN.progress, step=len(taken)))
    return replace(SEEN, runs=(run,)), NOW
watch(take, Console(), 0.05)
"""


def text_of(width: int, seen: Snapshot = SEEN, price_per_gpu_hour: float | None = None) -> str:
    """Return what is drawn on a terminal with so many columns."""
    out = StringIO()
    Console(file=out, width=width).print(drawing(seen, NOW, price_per_gpu_hour))
    return out.getvalue()


def test_drawing_has_the_words_of_the_plain_screen() -> None:
    lines = [re.sub(r" +", " ", line).strip() for line in text_of(120).splitlines()]
    assert lines[0] == "2 nodes, not Ready: n2; 2 of 4 GPUs in use"
    assert "STACK STATE STEP LOSS TOKENS/S MFU ETA SAVED" in lines
    assert "dev training 40/100 2.5 900 31% 1m -" in lines
    assert "other: no step is reported any more (for 7 min)" in lines


def test_verified_checkpoint_stands_below_the_runs() -> None:
    """The verified checkpoint is shown below the runs, in the same words as without a terminal."""
    known = {"verified_step": 700, "verified_by": "the copy to the mirror", "verified_at": NOW}
    run = replace(RUN, progress=replace(RUN.progress, **known))
    assert "dev: verified: step 700, 0 s ago, by the copy to the mirror" in text_of(
        120, Snapshot(SEEN.platform, (run,), "")
    )


def test_silent_node_is_seen_before_kubernetes_misses_it() -> None:
    """A node that has not reported for seconds is shown, before Kubernetes calls it not ready."""
    seen = Snapshot(PlatformStatus(2, silent={"n2": 14.0}), (RUN,), "")
    assert "2 nodes, n2 has not reported for 14 s" in text_of(120, seen)


def test_storage_stands_below_the_nodes() -> None:
    """The storage is shown below the nodes, in the same words as without a terminal."""
    claim = Claim("disttrain", "disttrain-pvc", "Bound", "50Gi", "efs")
    lines = text_of(120, Snapshot(PlatformStatus(2, claims=(claim,)), (RUN,), "")).splitlines()
    assert lines[1].rstrip() == bound_lines([claim])[0]


def test_narrow_terminal_shows_every_state() -> None:
    """On a narrow terminal the states of all runs can still be read."""
    shown = text_of(60)
    assert max(len(line) for line in shown.splitlines()) <= 60
    assert "training" in shown
    assert "stalled" in shown


def test_idle_gpus_are_named_below_the_nodes() -> None:
    """Idle GPUs are named with their node, and with their cost if a price is known."""
    seen = Snapshot(PlatformStatus(2, gpus=8, gpus_used=4, gpus_idle={"n2": 4}), (RUN,), "")
    assert "idle GPUs: 4 on n2" in text_of(120, seen)
    assert "idle GPUs: 4 on n2; 10.00 an hour at 2.5 per GPU-hour" in text_of(120, seen, 2.5)


def test_problems_of_many_machines_leave_room_for_the_runs() -> None:
    """If the same is wrong with every machine, such as its clock, the runs are still in sight: the
    screen does not scroll.
    """
    found = tuple(
        NodeFinding(f"gpu-{number:02}", "the clock is 600 s ahead") for number in range(64)
    )
    seen = replace(SEEN, platform=PlatformStatus(64, findings=found))
    lines = text_of(80, seen).splitlines()
    assert any("training" in line for line in lines[:20])
    assert "  and 58 more: ./disttrain status shows each" in [line.rstrip() for line in lines]


def test_platform_without_runs_says_so() -> None:
    assert "no run is on this platform" in text_of(80, Snapshot(SEEN.platform, (), ""))


def test_named_run_that_is_not_there_is_said() -> None:
    """A named run that is not there ends the watch at the first snapshot. If the run goes later,
    the screen says so and the watch goes on, because it may come back.
    """
    gone = Snapshot(SEEN.platform, (), "", missing="no stack has a run 'dev'")
    shown = text_of(80, gone)
    assert "no stack has a run 'dev'" in shown
    assert "no run is on this platform" not in shown
    with pytest.raises(ValueError, match="no stack has a run"):
        watch(lambda: (gone, NOW), Console(file=StringIO()), 0.0)


def test_pipe_and_dumb_terminal_get_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn in place in a pipe or on a terminal that cannot do it."""
    assert not is_possible(Console(file=StringIO()))
    monkeypatch.setenv("TERM", "dumb")
    assert not is_possible(Console(file=StringIO(), force_terminal=True))


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Yield both ends of a terminal of 100 columns: the keyboard's and the program's."""
    keyboard, there = pty.openpty()
    ioctl(keyboard, termios.TIOCSWINSZ, pack("HHHH", 24, 100, 0, 0))
    yield keyboard, there
    os.close(keyboard)
    os.close(there)


def test_screen_is_drawn_in_place_and_given_back(terminal: tuple[int, int]) -> None:
    """The screen is drawn in place until Ctrl-C, and the terminal's own screen comes back. A
    cluster or a kubeconfig that is away for one snapshot leaves the last screen, with the reason
    below it.
    """
    keyboard, there = terminal
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH],
        cwd=PROJECT,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=there,
        stdout=there,
        stderr=there,
    )
    seen, end = "", time.monotonic() + LIMIT_SECONDS

    def read_until(words: str) -> None:
        nonlocal seen
        while words not in seen:
            if select.select([keyboard], [], [], 0.2)[0]:
                seen += os.read(keyboard, 65536).decode(errors="replace")
            assert time.monotonic() < end, f"waited for {words!r}, and saw {seen!r}"

    try:
        for words in (
            "\x1b[?1049h",
            "1/100",
            "2/100",
            "the line was cut",
            "4/100",
            "5/100",
            "cannot be read",
            "7/100",
        ):
            read_until(words)
        assert "not seen for" in seen
        process.send_signal(signal.SIGINT)
        read_until("\x1b[?1049l")  # the terminal shows again what it showed before
        assert process.wait(LIMIT_SECONDS) == 130
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)
