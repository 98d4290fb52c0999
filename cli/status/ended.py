"""How runs ended whose workloads went after their `ttlSecondsAfterFinished`, read on the volume."""

from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

from cli.status.judge import UNDER_WAY, RunStatus, Seen, judge_run
from cli.status.look import Look
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.record import Record
from infra.kube.runs.gone import gone_words, how_ended

_words = dict[str, str]()
"""What a record's volume could not tell, by its version: a screen that is drawn again and again
asks once."""


def with_ends(api: Api, seen: Look, namespace: str) -> Look:
    """The look, with the end of each run whose workload has gone after its time.

    The first one that looks starts a pod on the volume, for some seconds. It notes the answer in
    the run's record, so that later looks know it.

    Args:
        api: the cluster.
        seen: the look.
        namespace: of the platform. Nothing is started in those of others.
    """
    if not any(_may_have_gone(run) for run in seen.runs):
        return seen
    # Two people may each have a stack of the same name: the records are in the order of the runs.
    runs = tuple(
        _with_end(api, run, record) if run.namespace == namespace else run
        for run, (record, _) in zip(seen.runs, seen.found, strict=True)
    )
    return replace(seen, runs=runs)


def _may_have_gone(run: RunStatus) -> bool:
    """A short run may end and go while its record is as young as that of one without a workload."""
    return run.state == "gone" or run.detail == UNDER_WAY


def _with_end(api: Api, run: RunStatus, record: Record) -> RunStatus:
    if not _may_have_gone(run) or record.ttl is None:
        return run
    if (api.now() - record.since).total_seconds() < record.ttl.seconds:  # its time is not over
        deleted = gone_words(replace(record, ttl=None))
        return replace(run, detail=deleted) if run.state == "gone" else run
    version = f"{record.owner} {record.version}"
    if run.state != "gone" or version not in _words:
        try:
            with redirect_stdout(StringIO()):  # what the pod waits for is no part of the screen
                found = replace(record, how_ended=how_ended(api, record))
        except (ApiError, TaskError, UnreachableError) as reason:
            _words[version] = gone_words(record, str(reason))
        else:
            if found.how_ended:
                return judge_run(Seen(found, None, (), {}), api.now())
            _words[version] = gone_words(record)
    return replace(run, detail=_words[version]) if run.state == "gone" else run
