"""Lines that `./disttrain status` needs stay among the last ones of a node's log."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.status.progress import Progress, read_progress
from cli.status.snapshot import LINES
from trainer.checkpoint import verified_words
from trainer.launch.said_again import EVERY_LINES, SaidAgain, read_again
from trainer.program.progress import Point

CHECKOUT = Path(__file__).resolve().parents[3]
AT = datetime(2026, 11, 22, 6, 40, 9, 123456, tzinfo=UTC)
STARTED = verified_words.continued(700, "step-00000700")
COPIED = f"[mirror] {verified_words.copied(750, 1_234_567, 0.5)}"
OLDER = f"[mirror] {verified_words.copied(600, 1_234_567, 0.5)}"
GOODPUT = "[node 0] goodput 92.3% of 3.1 h: 0 restarts, 0 steps made again; 9.320 rank-hours"
STEP = "step 797/4000 loss 2.0470 val_loss none tokens/s 6900 mfu 10% eta 5 min"
PROGRAM_STEP = f"[node 0] program: {Point(120, 1.8307, 120, 0.0).words()}"
# What a rank of node 0 prints goes through this: argv has the run's directory and the lines.
NODE = """
import os, sys
from pathlib import Path
from trainer.launch.node_output import NodeOutput
output = NodeOutput.of(0, Path(sys.argv[1]))
pipe = output.pipe(0)
with os.fdopen(os.dup(pipe.write_end), "w") as rank:
    pipe.start()
    for line in sys.argv[2:]:
        text, _, times = line.partition(" x ")
        rank.write((text + "\\n") * int(times or 1))
pipe.wait_for_end(60)
output.close()
"""


def printed(lines: list[str]) -> list[str]:
    """Return what a node prints when its ranks print these lines."""
    node, shown = SaidAgain(), list[str]()
    for line in lines:
        shown += [f"[node 0] {text}" for text in node.before(AT, line.encode())]
        shown.append(line)
    return shown


def seen(lines: list[str]) -> Progress:
    """Return the progress that `./disttrain status` reads from the last lines of a log."""
    return read_progress("\n".join(f"2026-11-25T10:00:00Z {line}" for line in lines[-LINES:]))


@pytest.mark.parametrize("steps", [*range(0, 450, 7), 10_000])
def test_verified_checkpoint_stays_among_the_last_lines(steps: int) -> None:
    """`./disttrain status` finds the verified checkpoint and the goodput, with the time of each,
    however many lines of steps have followed.
    """
    found = seen(printed([STARTED, COPIED, GOODPUT, *[STEP] * steps]))
    assert (found.verified_step, found.verified_by) == (750, verified_words.BY_MIRROR)
    assert found.goodput.startswith("92.3% of 3.1 h")
    assert found.rank_hours == 9.32
    if steps > LINES:
        assert found.verified_at == found.goodput_at == AT.replace(microsecond=0)


@pytest.mark.parametrize("lines", [*range(0, 450, 7), 10_000])
def test_last_step_of_a_program_stays_visible(lines: int) -> None:
    """`./disttrain status` finds the last step of a program however much it prints after that step,
    such as an evaluation at the end.
    """
    found = seen(printed([PROGRAM_STEP, *["evaluates"] * lines]))
    assert (found.step, found.of, found.loss) == (120, 120, "1.8307")
    if lines > LINES:
        assert found.stepped_at == AT.replace(microsecond=0)


@pytest.mark.parametrize("ended", ["round 2: 1 node(s)", "training stopped: rank 0 was killed"])
def test_step_of_processes_that_ended_is_over(ended: str) -> None:
    """The last step of processes that have ended is not repeated. The next processes have made no
    step yet, however much they print.
    """
    lines = printed([PROGRAM_STEP, f"[node 0] {ended}", *["imports"] * 1000])
    assert len(lines) == 1002
    assert seen(lines).step is None


def test_what_is_said_again_is_what_counts() -> None:
    """The line of the verified checkpoint that counts is repeated: the newest one that the mirror
    has, or an older one if a start had to go back to it.
    """
    for lines, step in (([COPIED, OLDER], 750), ([COPIED, STARTED], 700), ([STARTED, COPIED], 750)):
        (again,) = {
            found[1]
            for line in printed([*lines, *[STEP] * (3 * EVERY_LINES)])
            if (found := read_again(line.removeprefix("[node 0] ")))
        }
        assert f"step {step}" in again


def test_nothing_is_said_again_without_need() -> None:
    """A log without such lines stays as it is, and a repeated line is never the last one."""
    assert printed([STEP] * 1000) == [STEP] * 1000
    many = printed([STARTED, *[STEP] * 1000])
    assert len(many) == 1001 + 1000 // EVERY_LINES
    assert printed([STARTED, *[STEP] * EVERY_LINES])[-1] == STEP


def test_both_logs_of_a_node_have_it(tmp_path: Path) -> None:
    """The repeated lines are in the container's log, which Kubernetes shows, and in the run's log
    on the volume.
    """
    words = [sys.executable, "-c", NODE, str(tmp_path), STARTED, f"{STEP} x 1000"]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    shown = done.stdout.splitlines()
    assert seen(shown).verified_step == 700
    kept = (tmp_path / "logs" / "node-00000.log").read_text().splitlines()
    assert [line.split(" ", 3)[3] for line in kept] == shown
    again = [line for line in kept if "[node 0] said at " in line]
    assert {line.split(" ")[2] for line in again} == {"-"}
    assert len(again) == 1000 // EVERY_LINES
