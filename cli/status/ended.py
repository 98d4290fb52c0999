"""Finds out how runs ended whose workloads Kubernetes has removed after ttlSecondsAfterFinished.

The volume has the answer.
"""

from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

from cli.status.judge import UNDER_WAY, RunStatus, Seen, judge_run
from cli.status.snapshot import Snapshot
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.record import Record
from infra.kube.runs.gone import NoPodError, gone_words, how_ended
from infra.kube.runs.gone_pod import Asker

_words = dict[str, str]()
"""Texts for runs about which the volume had no answer, by the owner and version of their records.

They are kept so that `status --watch` reads the volume only once for each of them.
"""


def with_ends(api: Api, seen: Snapshot, namespace: str, own: Asker | None) -> Snapshot:
    """Add how each run ended whose workload was removed some time after its end.

    The first status after that starts a pod on the volume, for some seconds. It notes the answer in
    the run's record, so that later ones need no pod.

    Args:
        api: the cluster.
        seen: what was seen of the cluster.
        namespace: the platform's namespace. No pod is started in other namespaces.
        own: what the stack that asks gives to the pod, by its outputs; None: no stack asks.
    """
    if not any(_may_have_gone(run) for run in seen.runs):
        return seen
    # Runs and records are matched by their order, and not by the stack's name, because two people
    # may each have a stack of the same name.
    unread = dict[str, NoPodError]()
    runs = tuple(
        _with_end(api, run, record, own, unread) if run.namespace == namespace else run
        for run, (record, _) in zip(seen.runs, seen.found, strict=True)
    )
    return replace(seen, runs=runs)


def _may_have_gone(run: RunStatus) -> bool:
    """Whether the workload may have been removed after its end.

    A short run may have ended while its record is still young. It then looks like a run whose
    workload is not made yet.
    """
    return run.state == "gone" or run.detail == UNDER_WAY


def _with_end(
    api: Api,
    run: RunStatus,
    record: Record,
    own: Asker | None,
    unread: dict[str, NoPodError],
) -> RunStatus:
    """Return the state of one run with its end.

    `unread` has by a pod's volume and place why no such pod starts now. Each further one
    would wait as long.
    """
    if not _may_have_gone(run) or record.ttl is None:
        return run
    # Before its time is over, Kubernetes does not remove the workload, so somebody has deleted it.
    if (api.now() - record.since).total_seconds() < record.ttl.seconds:
        deleted = gone_words(replace(record, ttl=None))
        return replace(run, detail=deleted) if run.state == "gone" else run
    version, ttl = f"{record.owner} {record.version}", record.ttl
    where = f"{ttl.claim} {ttl.placement}"
    if run.state != "gone" or version not in _words:
        try:
            if where in unread:
                raise unread[where]
            with redirect_stdout(StringIO()):  # messages about the pod's start are dropped
                found = replace(record, how_ended=how_ended(api, record, own))
        except (ApiError, TaskError, UnreachableError) as reason:
            if isinstance(reason, NoPodError):
                unread[where] = reason
            _words[version] = gone_words(record, str(reason))
        else:
            if found.how_ended:
                return judge_run(Seen(found, None, (), {}), api.now())
            _words[version] = gone_words(record)
    return replace(run, detail=_words[version]) if run.state == "gone" else run
