"""Reads the state of the cluster for `disttrain status`, and changes nothing.

A snapshot is one reading of the nodes, the runs, their pods and the pods' last log lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cli.pod_facts import has_begun
from cli.status.clocks import ahead_by_age, ahead_when_told, by_api_clock, doubted_age
from cli.status.controllers_down import with_controllers_down
from cli.status.current_pods import current_pods, pods_wanted
from cli.status.judge import RunStatus, Seen, judge_run
from cli.status.lost_node import on_lost_node
from cli.status.named import is_named, missing_text
from cli.status.node_findings import clock_findings_of, node_findings
from cli.status.platform_status import PlatformStatus, judge_platform
from cli.status.progress import Progress, read_progress
from cli.status.promised_place import in_promised_place
from cli.status.reports import TRY_SECONDS, Reports
from cli.status.storage import see_claims
from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed, unless_forbidden
from infra.kube.controllers.programs_of_runs import ProgramsOfRuns
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, container_of, machine_of, name_of
from infra.kube.paths import NODES, PODS, log_path, pod_path
from infra.kube.pods.dynamic_gpus import dynamic_gpus
from infra.kube.queues.kueue import is_stopped, queue_of
from infra.kube.queues.kueue_machines import words_of_machines
from infra.kube.queues.queue_findings import out_of_queue, waiting
from infra.kube.queues.queue_place import InQueue
from infra.kube.queues.unqueued_findings import held_without_queue
from infra.kube.record import ALL, COLLECTION, SELECTOR, Record, parse_record
from infra.kube.runs.controller_words import words_of_controller
from infra.kube.workload import is_suspended, true_condition

NO_SUCH_KIND = 404  # the API server's status if it no longer knows the kind of an object
FIRST_BYTES = 1 << 16  # how much of a log's beginning is read, for lines that are only there
LINES = 200  # how many last lines of each pod are read; the trainer writes one per logged step
AWAY = (ApiError, UnreachableError, ValueError)
"""The errors of a snapshot while the cluster does not answer, or while its kubeconfig is replaced.
"""
# The logs of so many pods of a run are read: node 0, and some that may say why the run waits.
MOST_LOGS = 8


@dataclass(frozen=True)
class Snapshot:
    """What one reading of the cluster has seen, and what it could not see.

    Args:
        platform: the nodes, GPUs and claims.
        runs: the runs, in the order of their stacks' names.
        unseen: which runs could not be looked for, and why.
        found: for each run, in the same order, its record and its training pods.
        missing: an error text, if the user has named a run that does not exist; else empty.
    """

    platform: PlatformStatus
    runs: tuple[RunStatus, ...]
    unseen: str
    found: tuple[tuple[Record, list[Json]], ...] = field(default=(), repr=False)
    missing: str = ""


def take_snapshot(
    api: Api, namespace: str, *, with_volume: bool = False, wanted: str = ""
) -> Snapshot:
    """Read the state of the cluster once. The result names what these credentials may not read.

    Args:
        api: the cluster.
        namespace: the namespace in which runs are looked for, if all namespaces may not be read.
        with_volume: whether to look for `Progress.volume` also in the first lines of a run that has
            trained for long. This takes another request for each run.
        wanted: the name of a run or of a stack, to read only that run; empty for all runs.

    Raises:
        ApiError: the cluster refuses even to list the runs of this namespace.
        UnreachableError: the cluster does not answer.
    """
    nodes, platform = _platform(api)
    reports = Reports(api, nodes)
    records, unseen = _records(api, namespace)
    missing = ""
    if wanted:
        run_names = _run_names(api, namespace)
        chosen = [record for record in records if is_named(wanted, record, run_names)]
        missing = "" if chosen else missing_text(wanted, records, run_names, unseen)
        records = chosen
    seen: list[tuple[RunStatus, Seen]] = []
    for record in records:
        found = unless_forbidden(
            lambda record=record: _see_with_volume(api, record, reports, ask=with_volume),
            lambda reason, record=record: _unread(record, str(reason)),
        )
        seen.append((judge_run(found, api.now()), found))
    pods_by_namespace: dict[str, list[Json]] = {} if seen else {namespace: []}
    for status, found in seen:
        pods_by_namespace.setdefault(status.namespace, []).extend(found.pods)
    clocks = clock_findings_of(reports.clocks_ahead, platform.findings)
    platform = replace(
        platform,
        silent=reports.silent,
        claims=see_claims(api, pods_by_namespace),
        findings=(*platform.findings, *clocks),
    )
    seen.sort(key=lambda each: (each[0].stack, each[0].namespace))
    programs = ProgramsOfRuns(api)
    runs = list[RunStatus]()
    for status, found in seen:
        placed = in_promised_place(on_lost_node(status, found.pods, platform), found.pods, nodes)
        runs.append(with_controllers_down(placed, found, programs))
    by_run = tuple((found.record, list(found.pods)) for _, found in seen)
    return Snapshot(platform, tuple(runs), unseen, by_run, missing)


def see_run(api: Api, record: Record) -> tuple[RunStatus, list[Json]]:
    """Return the state of one run, and its training pods. It raises as `take_snapshot` does.

    The answer of each node is waited for, and controllers that are down are not named.
    """
    seen = _see(api, record, None)
    return judge_run(seen, api.now()), list(seen.pods)


def _records(api: Api, namespace: str) -> tuple[list[Record], str]:
    """Return the records of all runs that may be read, and which others could not be, and why."""
    found, forbidden = list_if_allowed(api, ALL, SELECTOR)
    unseen = [f"runs in other namespaces than {namespace} ({forbidden})"] if forbidden else []
    if found is None:
        found = api.list(COLLECTION.format(namespace), SELECTOR)
    records = list[Record]()
    for item in found:
        try:
            records.append(parse_record(item))
        except ValueError as error:
            unseen.append(str(error))
    return records, "; ".join(unseen)


def _run_names(api: Api, namespace: str) -> dict[str, set[str]]:
    """Return the names of each owner's runs, as far as these credentials may read them."""
    # Imported here, because a snapshot of all runs does not need the import of YAML.
    from cli.runs.in_use import CONFIGS, runs_of_owners

    found, _ = list_if_allowed(api, ALL, CONFIGS)
    if found is None:
        found, _ = list_if_allowed(api, COLLECTION.format(namespace), CONFIGS)
    return runs_of_owners(found or [])


def _platform(api: Api) -> tuple[list[Json], PlatformStatus]:
    """Return the nodes, as far as they may be read, and the state of the platform."""
    nodes, no_nodes = list_if_allowed(api, NODES)
    if nodes is None:
        return [], judge_platform(None, None, no_nodes)
    pods, no_pods = list_if_allowed(api, "/api/v1/pods")
    found = node_findings(nodes, pods or [], api.now())
    platform = judge_platform(nodes, pods, no_pods)
    if not platform.gpus:
        platform = judge_platform(nodes, pods, no_pods, dynamic_gpus(api))
    return nodes, replace(platform, findings=found)


def _see(api: Api, record: Record, reports: Reports | None) -> Seen:
    try:
        item, no_kind = _workload(api, record), False
    except ApiError as reason:
        if reason.status != NO_SUCH_KIND:
            raise
        item, no_kind = None, True
    selector = names.training_selector(record.owner)
    listed = api.list(PODS.format(record.namespace), selector)
    pods = sorted(current_pods(listed), key=name_of)
    progress, unseen, without_answer = dict[str, Progress](), "", set[str]()
    for pod in [pod for pod in pods if has_begun(pod)][:MOST_LOGS]:
        node = machine_of(pod)
        if node in without_answer:
            continue
        ask = partial(_log, api, record.namespace, pod)
        try:
            text = reports.answer_of(node, ask) if reports else ask(None)
            told = read_progress(text)
            ahead = reports.clocks_ahead.get(node) if reports else None
            if ahead is None:
                ahead = _ahead_by_age(api, record.namespace, pod, told)
            progress[name_of(pod)] = by_api_clock(told, ahead)
        except (ApiError, UnreachableError) as reason:  # for instance, the machine is lost
            unseen = f"the lines of pod {name_of(pod)} cannot be read: {reason}"
            if isinstance(reason, UnreachableError):
                without_answer.add(node)
    held = item is not None and is_suspended(item, record.suspend)
    queued = _queued(api, record, item) if item and held else None
    out = _out_of_queue(api, record, item) if item and held and queued is None else ""
    is_over = item is not None and bool(true_condition(item, list(record.over)))
    said = ""
    if item and not held and not is_over:
        said = words_of_controller(api, record.namespace, item, pods, pods_wanted(pods))
    other_machines = (
        words_of_machines(api, record.namespace, item, pods) if item and not held else ""
    )
    return Seen(
        record,
        item,
        pods,
        progress,
        unseen=unseen,
        queued=queued,
        no_pods=said,
        other_machines=other_machines,
        no_kind=no_kind,
        out_of_queue=out,
    )


def _workload(api: Api, record: Record) -> Json | None:
    workload = record.workload
    path = api.path(workload.api_version, workload.kind, record.namespace, workload.name)
    return api.get(path)


def _unread(record: Record, reason: str) -> Seen:
    """Return what is known of a run whose workload or pods these credentials may not read."""
    return Seen(record, None, (), {}, unread=reason)


def _queued(api: Api, record: Record, item: Json) -> InQueue | None:
    """Return what a suspended run waits for in its queue; None if it was stopped by somebody."""
    queue = queue_of(item)
    if not queue:
        words = "" if record.suspended_by else held_without_queue(api, record.namespace, item)
        return InQueue(None, words) if words else None
    try:
        if is_stopped(api, record.namespace, item, record.suspend):
            return None
        place = waiting(api, record.namespace, item)
    except (ApiError, TaskError) as reason:
        words = f"in queue {queue}; what it waits for cannot be read: {reason}"
        return InQueue(None, words)
    return place or InQueue(None, f"in queue {queue}: it has its place, and its pods come")


def _out_of_queue(api: Api, record: Record, item: Json) -> str:
    if record.suspended_by:
        return ""
    return unless_forbidden(lambda: out_of_queue(api, record.namespace, item), lambda _: "")


def _see_with_volume(api: Api, record: Record, reports: Reports, *, ask: bool) -> Seen:
    """Return what `_see` does; with `ask` also the volume, as `with_volume` of `take_snapshot`."""
    seen = _see(api, record, reports)
    return replace(seen, progress=_with_volume(api, seen)) if ask else seen


def _with_volume(api: Api, seen: Seen) -> Mapping[str, Progress]:
    """Add what node 0 wrote about the volume at its start, if the last lines no longer show it."""
    progress = seen.progress
    first = next((pod for pod in seen.pods if progress.get(name_of(pod), Progress()).step), None)
    if len(seen.pods) == 1 or first is None or any(each.volume for each in progress.values()):
        return progress
    name = name_of(first)
    query = {"container": container_of(first), "limitBytes": str(FIRST_BYTES), "timestamps": "true"}
    try:
        begin = api.text(log_path(pod_path(seen.record.namespace, name)), query, TRY_SECONDS)
    except (ApiError, UnreachableError):
        return progress  # everything else was read, and a later snapshot can try again
    said = read_progress(begin).volume
    return {**progress, name: replace(progress[name], volume=said)}


def _ahead_by_age(api: Api, namespace: str, pod: Json, told: Progress) -> float:
    """Return by how many seconds the clock of a pod's node is ahead, by the age of its last line.

    This is used if the lease of the node cannot tell. The result is 0.0 without a request if
    nothing looks wrong, and after requests that show nothing.
    """
    query = {"container": container_of(pod), "tailLines": "1", "timestamps": "true"}
    path = log_path(pod_path(namespace, name_of(pod)))

    def ask(seconds: int) -> str:
        return api.text(path, {**query, "sinceSeconds": str(seconds)}, TRY_SECONDS)

    doubted = doubted_age(told, api.now(), ahead_when_told(pod))
    try:
        return (ahead_by_age(ask, api.now, doubted) if doubted else None) or 0.0
    except (ApiError, UnreachableError):
        return 0.0  # everything else was read, and a later snapshot can try again


def _log(api: Api, namespace: str, pod: Json, seconds: float | None) -> str:
    container = container_of(pod)
    query = {"container": container, "tailLines": str(LINES), "timestamps": "true"}
    return api.text(log_path(pod_path(namespace, name_of(pod))), query, seconds)
