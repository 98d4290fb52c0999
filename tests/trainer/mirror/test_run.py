"""Whole runs with a mirror, as a pod runs them."""

from __future__ import annotations

import shutil

from tests.gate import Gate
from tests.trainer.lab import Lab, free_port, last_step, losses
from trainer.checkpoint.verified_words import BY_MIRROR, BY_START, Verified, read_verified
from trainer.mirror.status import read_status


def test_run_goes_on_from_the_mirror_where_the_volume_is_empty(
    lab: Lab, bucket: str, s3_environment: dict[str, str]
) -> None:
    """The second start finds nothing on the volume, and goes on in the metrics of the first.

    Both the copy and the start verify the checkpoint, and `./disttrain status` reads that of them.
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


def test_store_that_is_away_costs_no_step(
    lab: Lab, bucket: str, s3_environment: dict[str, str], gate: Gate
) -> None:
    """It is away from the beginning to the end, once there is a checkpoint on the volume."""
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
