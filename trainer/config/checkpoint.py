"""The section `checkpoint` of a run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.option import Form, option


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written, how many of them stay, and where they are copied."""

    interval: int = option(
        250, "most updates that a kill can cost; 0: saved only at the end", at_least=0
    )
    keep_last: int = option(2, "newest complete checkpoints that stay", at_least=1)
    keep_best: bool = option(
        True, "save at each new lowest validation loss, and let that checkpoint stay too"
    )
    asynchronous: bool = option(True, "write while training continues, at most one at a time")
    start_over: bool = option(
        False, "start at step 0 where checkpoints are there and none of them can be used"
    )
    mirror: str | None = option(
        None,
        "folder elsewhere that gets a copy of each checkpoint, such as s3://bucket/prefix; "
        "credentials come from the environment and never stand in it",
        form=Form(
            r"[a-z][a-z0-9+.-]*://[^\s@]+",
            "an address such as s3://bucket/prefix, without blanks and without user and password",
        ),
    )
    mirror_bytes_per_second: int = option(
        0, "most bytes per second of one copy to or from the mirror; 0: no limit", at_least=0
    )
    mirror_wait_seconds: int = option(
        120, "how long a run that ends or stops waits for its mirror", at_least=0
    )

    @property
    def steps_between_saves(self) -> int:
        """The number of updates between two checkpoints; with 0 there is one only at the end.

        Checkpoints that are written in the background come a fifth early. A kill during the write
        costs all updates since the previous checkpoint, including those made during the write.
        """
        return self.interval - (self.interval // 5 if self.asynchronous else 0)

    def describe(self) -> str:
        """Say for users when checkpoints are written, and how many updates a kill can cost."""
        if not self.interval:
            best = " and at each new lowest validation loss" if self.keep_best else ""
            return f"checkpoints only at the end{best}; a kill can cost all steps"
        where = ", written in the background" if self.asynchronous else ""
        return (
            f"a checkpoint every {self.steps_between_saves} steps{where}; "
            f"a kill costs at most {self.interval}"
        )
