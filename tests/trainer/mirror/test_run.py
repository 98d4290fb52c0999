"""Whole runs with a mirror, as a pod runs them."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from tests.gate import Gate
from tests.trainer.lab import Lab, free_port, last_step, losses, wait_for
from tests.trainer.process_tree import is_running, processes_below
from trainer.checkpoint.verified_words import BY_MIRROR, BY_START, Verified, read_verified
from trainer.mirror.status import read_status


def test_run_goes_on_from_the_mirror_where_the_volume_is_empty(
    lab: Lab, bucket: str, s3_environment: dict[str, str]
) -> None:
    """A run whose volume is empty fetches its checkpoint from the mirror, and continues the metrics
    of its first start.

    Both the copy and the start print that the checkpoint is verified, in the words that
    `./disttrain status` reads.
    """
    mirror = f"s3://{bucket}/runs"
    whole = lab.config(run_name="whole", train__max_steps=12)
    lab.train(whole, 1)
    first = lab.config(
        checkpoint__mirror=mirror, checkpoint__mirror_wait_seconds=60, train__max_steps=6
    )
    assert (
        lab.start_entrypoint(first, 0, 1, 1, free_port(), environment=s3_environment).wait(120) == 0
    ), lab.logs()
    assert read_status(first.run_dir).newest_step == 6
    assert Verified(6, BY_MIRROR) in map(read_verified, lab.logs().splitlines())
    shutil.rmtree(first.run_dir)
    second = lab.config(checkpoint__mirror=mirror, train__max_steps=12)
    assert (
        lab.start_entrypoint(second, 0, 1, 1, free_port(), environment=s3_environment).wait(120)
        == 0
    ), lab.logs()
    assert "fetching step 6 from the mirror" in lab.logs()
    assert Verified(6, BY_START) in map(read_verified, lab.logs().splitlines())
    assert losses(second) == losses(whole)


def test_mirror_process_that_dies_is_started_again(lab: Lab) -> None:
    """A mirror process that is killed is started again while the ranks go on, as their round may
    last for weeks.
    """
    run = lab.config(
        train__max_steps=1_000_000,
        train__decay_steps=200,
        checkpoint__interval=20,
        train__spare_processes=False,
        checkpoint__mirror=f"file://{lab.root}/mirror",
    )
    pod = lab.execute_entrypoint(run, 0, 1, 1, free_port())
    copied = lambda: read_status(run.run_dir).newest_step or 0  # noqa: E731
    wait_for("a copy", lambda: copied() > 0, 120, lab)
    (mirror,) = [pid for pid in processes_below(pod.pid) if is_mirror(pid)]
    os.kill(mirror, signal.SIGKILL)
    wait_for("the end of the process", lambda: not is_running(mirror), 60, lab)
    step = copied()
    wait_for("a copy by the next process", lambda: copied() > step, 120, lab)
    said = "warning: the process of the mirror was killed by SIGKILL"
    assert said in lab.node_log(0).read_text()
    assert "round 2" not in lab.node_log(0).read_text()


def is_mirror(pid: int) -> bool:
    """Return whether the process is the one that copies to the mirror."""
    with suppress(OSError):
        return b"\0mirror\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_store_that_is_away_costs_no_step(
    lab: Lab, bucket: str, s3_environment: dict[str, str], gate: Gate
) -> None:
    """A run that continues from a checkpoint on the volume makes all its steps although the store
    cannot be reached, and warns that its newest checkpoint is not in the mirror.
    """
    start = lab.config(train__max_steps=6)
    lab.train(start, 1)
    (start.run_dir / "done.json").unlink()
    gate.close()
    config = lab.config(
        train__max_steps=12,
        checkpoint__interval=2,
        checkpoint__mirror=f"s3://{bucket}",
        checkpoint__mirror_wait_seconds=1,
    )
    assert (
        lab.start_entrypoint(config, 0, 1, 1, free_port(), environment=s3_environment).wait(120)
        == 0
    ), lab.logs()
    assert last_step(config) == 12
    assert "warning: the newest checkpoint is not in the mirror yet" in lab.logs()
