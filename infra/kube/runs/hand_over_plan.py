"""What a job of the task `hand-over` says, after its fields have been checked."""

from dataclasses import dataclass
from typing import Any

from infra.kube.job import Job
from infra.kube.record import Ttl
from infra.kube.workload import Workload, is_switch

WHEN_BUSY = ("replace", "wait", "refuse")
OTHER_CHOICE = "pulumi config set whenBusy wait (or replace)"


@dataclass(frozen=True)
class Plan:
    """The fields of the task's job, after they have been checked."""

    workload: Workload
    revision: str
    gpus: int
    gpus_total: int
    suspend: dict[str, Any]
    resume: dict[str, Any]
    when_busy: str
    request: str
    grace_seconds: int
    wait_timeout_seconds: int
    over: tuple[str, ...]
    queue: str
    """The queue of Kueue in which the run waits; empty: the run is in no queue."""
    ttl: Ttl | None
    """When the workload is removed after its end; None: it stays."""
    other_choice: str
    """The command by which the user lets this run wait for other runs or replace them."""
    by_flag: bool
    """Whether a command's option has set `when_busy`; otherwise the stack's setting has."""
    made_again: bool
    """Whether the engine is about to make the workload although nothing of the run has changed."""

    @staticmethod
    def of(job: Job) -> "Plan":
        """Check the fields of the job. Raises ValueError, which names the field that is wrong."""
        for field in ("suspend", "resume"):
            change = job.mapping(field)
            if not is_switch(change):
                raise ValueError(
                    f"{field}: {change!r} of this topology cannot be used: other stacks only send "
                    "a command, or a patch of numbers, true, false or null below spec. See "
                    '"What a workload kind must do" in docs/extending.md'
                )
        when_busy = job.text("when_busy")
        if when_busy not in WHEN_BUSY:
            known = ", ".join(WHEN_BUSY)
            raise ValueError(
                f"whenBusy: {when_busy!r} cannot be used: there is no such choice. "
                f"Set one of {known}."
            )
        return Plan(
            workload=Workload.from_json(job.mapping("workload")),
            revision=job.text("revision"),
            gpus=job.number("gpus"),
            gpus_total=job.number("gpus_total"),
            suspend=job.mapping("suspend"),
            resume=job.mapping("resume"),
            when_busy=when_busy,
            request=job.text("request"),
            grace_seconds=job.number("grace_seconds"),
            wait_timeout_seconds=job.number("wait_timeout_seconds"),
            over=(*job.texts("done"), *job.texts("failed")),
            queue=str(job.fields.get("queue") or ""),
            ttl=Ttl.from_json(job.mapping("ttl")),
            other_choice=str(job.fields.get("other_choice") or OTHER_CHOICE),
            by_flag=bool(job.fields.get("by_flag")),
            made_again=bool(job.fields.get("made_again")),
        )
