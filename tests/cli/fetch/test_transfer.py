"""Every byte of a run arrives once, however the transfer is cut. The pod's program is a real
process.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from cli.fetch.partial import PARTIAL
from infra.kube.errors import TaskError, UnreachableError
from tests.cli.fetch.local_pod import (
    BLOCK_BYTES,
    LocalPod,
    contents,
    fetch,
    make_run,
    small_ranges,
)

PROJECT = Path(__file__).parents[3]
CUTS = 50


def test_fifty_cuts_at_random_bytes_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run arrives whole although the connection is cut fifty times. Only the block in which a cut
    falls is sent twice.
    """
    seed = int(os.environ["DISTTRAIN_TEST_SEED"])
    print(f"seed {seed}")
    draw = random.Random(seed)
    small_ranges(monkeypatch)
    run = make_run(tmp_path / "volume" / "demo", model_bytes=4_000_003)
    size = sum(len(content) for content in contents(run).values())
    each = size // (CUTS + 2)
    pod = LocalPod([draw.randrange(1, each) for _ in range(CUTS)])
    brought = fetch(monkeypatch, pod, run, tmp_path / "here")
    assert pod.cuts_made == CUTS
    assert contents(tmp_path / "here") == contents(run)
    manifest = (run / "checkpoints/step-00000100/manifest.json").stat().st_size
    assert brought.sent == size - manifest  # the answer of `look` already has the manifest
    assert pod.sent_bytes <= brought.sent + CUTS * BLOCK_BYTES
    assert not list((tmp_path / "here").rglob(f"*{PARTIAL}*"))


PROGRAM = """
import sys, os
from pathlib import Path
import pytest
from tests.cli.fetch.local_pod import LocalPod, fetch, small_ranges
with pytest.MonkeyPatch.context() as patch:
    small_ranges(patch)
    pod = LocalPod([int(sys.argv[3])], end=lambda: os._exit(9))
    brought = fetch(patch, pod, Path(sys.argv[1]), Path(sys.argv[2]))
    print(brought.sent)
"""


def test_program_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """A `fetch` that was killed by SIGKILL is continued by the next one, which asks only for what
    is missing.
    """
    seed = int(os.environ["DISTTRAIN_TEST_SEED"])
    print(f"seed {seed}")
    draw = random.Random(seed)
    run = make_run(tmp_path / "volume" / "demo", model_bytes=1_000_003)
    size = sum(len(content) for content in contents(run).values())
    here = tmp_path / "here"
    limits = [draw.randrange(1, size // 6) for _ in range(5)] + [2 * size]
    sent = 0
    for limit in limits:
        words = [str(run), str(here), str(limit)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (0 if limit == limits[-1] else 9), done.stderr
        sent = int(done.stdout or 0)
    assert contents(here) == contents(run)
    # Each kill loses what was on its way in each of the four streams, and nothing else.
    assert sent <= size - sum(limits[:-1]) + 5 * 4 * BLOCK_BYTES


def test_connection_that_brings_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` gives up after a few cuts in a row that brought no byte, and says why."""
    monkeypatch.setattr("cli.fetch.transfer.MOST_CUTS", 2)

    def refuse(words: list[str]) -> None:
        if words[0] == "send":
            raise UnreachableError("no route to host")

    run = make_run(tmp_path / "volume" / "demo")
    with pytest.raises(TaskError, match=r"cut 3 times without a new byte \(no route to host\)"):
        fetch(monkeypatch, LocalPod(before=refuse), run, tmp_path / "here")


def test_second_fetch_sends_nothing_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second `fetch` sends only the file that has changed."""
    run = make_run(tmp_path / "volume" / "demo")
    here = tmp_path / "here"
    fetch(monkeypatch, LocalPod(), run, here)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "loss": 0.5}\n')
    pod = LocalPod()
    fetch(monkeypatch, pod, run, here)
    assert contents(here) == contents(run)
    assert pod.sent_bytes == (run / "metrics.jsonl").stat().st_size


def test_bytes_changed_on_their_way_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that arrives with other bytes than were sent is fetched again. The sha256 is computed
    of what arrived here, not of what the pod has read.
    """
    run = make_run(tmp_path / "volume" / "demo")
    model = run / "checkpoints" / "step-00000100" / "model-00000.bin"
    right = model.read_bytes()
    said: list[str] = []

    def damage_once(words: list[str]) -> None:
        wrong = bytes([right[0] ^ 1]) + right[1:]
        sends = [each for each in pod.commands if each[0] == "send"]
        model.write_bytes(wrong if words[0] == "send" and len(sends) == 1 else right)

    pod = LocalPod(before=damage_once)
    fetch(monkeypatch, pod, run, tmp_path / "here", say=said.append)
    assert contents(tmp_path / "here") == contents(run)
    assert any("model-00000.bin is not what was sent" in line for line in said)
