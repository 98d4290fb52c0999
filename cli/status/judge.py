"""Decides the state of a run, in one word, from its record, its workload, its pods and their logs.

What was not seen is reported as such, and never guessed. This module is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from cli.pod_facts import has_begun
from cli.status.progress import Progress, last_words, read_progress
from infra.kube.objects import Json, is_running, part, parts
from infra.kube.pods.report import MORE_MEMORY, describe_pods, lack_of_memory, report_pod
from infra.kube.queues.queue_place import InQueue
from infra.kube.record import Record
from infra.kube.runs.busy import COMING_UP_SECONDS, NOT_THERE
from infra.kube.runs.gone import AGAIN, gone_words
from infra.kube.workload import GIVEN_UP, Workload, is_suspended, true_condition

# A run without a step for this time is stalled. A whole evaluation and the first compilation
# usually take less.
STALLED_SECONDS = 300
QUIET_STEPS = 5  # a run without a step for this many times the usual time is quiet, not training
# The least time until a run is quiet: small differences of clocks are not corrected (clocks.py).
QUIET_SECONDS = 5.0
NEEDS_ATTENTION = ("failed", "failing", "stalled", "gone")
GOES_ON = ("training", "saving")
OVER = ("finished", "failed", "stopped", "suspended", "gone")  # no rank works any more
MAY_LACK_MEMORY = ("failed", "failing", "recovering", "starting", "waiting")
UNDER_WAY = f"its workload is not there: {NOT_THERE}"  # the detail of a run with a young record
NOT_READ = "./disttrain status of its stack reads it on the volume"


@dataclass(frozen=True)
class RunStatus:
    """The state of one run.

    Args:
        stack: the full name of the stack that owns the run.
        namespace: the namespace of the run.
        workload: the kind and the name of its workload.
        gpus: how many GPUs it asks for.
        state: one word: queued, waiting, starting, training, saving, quiet, recovering, stalled,
            stopped, suspended, finished, failing, failed, gone, or unknown.
        detail: the reason for that state; empty if there is nothing to say.
        since: when the state began; None if that is not known.
        progress: what the log of node 0 says.
    """

    stack: str
    namespace: str
    workload: str
    gpus: int
    state: str
    detail: str = ""
    since: datetime | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def short_stack(self) -> str:
        """The name of the stack without its organisation and its project."""
        return self.stack.rpartition("/")[2]

    @property
    def is_over(self) -> bool:
        """Whether no rank of the run works any more."""
        return self.state in OVER

    @property
    def is_training(self) -> bool:
        """Whether the run makes steps now, so that its speed and its ETA are those of now."""
        return self.state == "training"


@dataclass(frozen=True)
class Seen:
    """What was seen of one run in the cluster.

    Args:
        record: the run's record, a ConfigMap.
        item: its workload; None if there is none.
        pods: its training pods.
        progress: the progress by the name of the pod, for each pod whose log could be read.
        unseen: why something could not be read; empty if everything was read.
        queued: what it waits for in a queue, if it is suspended for that reason.
        no_pods: why pods are missing, in the words of the controller that should make them.
        other_machines: a text if Kueue counts other machines than those of the pods; else empty.
        no_kind: True if the cluster no longer knows the kind of the workload, which is gone too.
        unread: why the workload or the pods may not be read; empty if they may.
        out_of_queue: why it is out of its queue of Kueue, if that was done neither by
            `./disttrain stop` nor for another run.
    """

    record: Record
    item: Json | None
    pods: Sequence[Json]
    progress: Mapping[str, Progress]
    unseen: str = ""
    queued: InQueue | None = None
    no_pods: str = ""
    other_machines: str = ""
    no_kind: bool = False
    unread: str = ""
    out_of_queue: str = ""


def judge_run(seen: Seen, now: datetime) -> RunStatus:
    """Decide the state of one run.

    Args:
        seen: what was seen of the run in the cluster.
        now: the API server's time.
    """
    state, detail, since = _state(seen, now)
    record = seen.record
    if state in MAY_LACK_MEMORY and MORE_MEMORY not in detail:
        detail = _joined(detail, lack_of_memory(list(seen.pods)))
    return RunStatus(
        stack=record.stack,
        namespace=record.namespace,
        workload=str(record.workload),
        gpus=record.gpus,
        state=state,
        detail=_joined(detail or seen.unseen, seen.other_machines),
        since=since,
        progress=leading(seen),
    )


def leading(seen: Seen) -> Progress:
    """Return the progress of node 0: of all pods that report steps, that of the highest step.

    If no pod reports steps, it is the progress of the first pod.
    """
    found = [progress for progress in seen.progress.values() if progress.step is not None]
    rest = [progress for progress in seen.progress.values() if progress.step is None]
    first = max(found, key=lambda progress: progress.step or 0, default=(rest or [Progress()])[0])
    # Each pod writes about its own ranks, so the first such text is taken.
    transport = next((p.transport for p in seen.progress.values() if p.transport), "")
    own_ranks = next((p.own_ranks for p in seen.progress.values() if p.own_ranks), "")
    volume = next((p.volume for p in seen.progress.values() if p.volume), "")
    return replace(first, transport=transport, own_ranks=own_ranks, volume=volume)


def _state(seen: Seen, now: datetime) -> tuple[str, str, datetime | None]:
    record, item, pods = seen.record, seen.item, list(seen.pods)
    if seen.unread:
        return "unknown", seen.unread, None
    if item is None and record.how_ended:
        state = "finished" if record.had_finished else "failed"
        return state, gone_words(record), None
    if seen.no_kind:
        return "gone", _no_kind(record.workload), None
    if item is None:
        if (now - record.since).total_seconds() < COMING_UP_SECONDS:
            return "starting", UNDER_WAY, record.since
        return "gone", gone_words(record, NOT_READ), None
    suspended = is_suspended(item, record.suspend)
    if suspended and (saving := _saves_before_it_ends(seen, now)):
        return "saving", saving, leading(seen).saving_at
    stopped = suspended and not seen.queued
    if stopped and record.suspended_by == record.stack:
        saved = f"it has saved step {record.saved_step}; " if record.saved_step else ""
        return "stopped", f"{saved}./disttrain resume brings it back", None
    if stopped and seen.out_of_queue:
        return "stopped", f"{seen.out_of_queue}; ./disttrain resume puts it back", None
    if stopped:
        by = f"replaced by {record.suspended_by}; " if record.suspended_by else ""
        return "suspended", f"{by}its next `pulumi up` resumes it", None
    over = true_condition(item, list(record.over))
    progresses = list(seen.progress.values())
    if over.startswith(GIVEN_UP):
        return "failed", last_words(progresses) or over, None
    finished = next((p.finished for p in progresses if p.finished), "")
    if over or finished:
        return "finished", finished, None
    if seen.queued:
        return "queued", seen.queued.words, seen.queued.since
    state, detail, since = _running(seen, pods, progresses, now)
    return state, _joined(detail, seen.no_pods), since


def _no_kind(workload: Workload) -> str:
    return (
        f"{workload} went with its kind, which the cluster does not know any more "
        f"({workload.api_version}). When the controller of that kind is installed again, {AGAIN}"
    )


def _running(
    seen: Seen, pods: list[Json], progresses: list[Progress], now: datetime
) -> tuple[str, str, datetime | None]:
    progress = leading(seen)
    reports = [report_pod(pod) for pod in pods]
    problem = next((r.problem or r.stuck for r in reports if r.problem or r.stuck), "")
    if problem:
        words = last_words(progresses) or last_words(before_their_restarts(pods))
        return "failing", words or problem, None
    pending = [pod for pod in pods if not has_begun(pod)]
    if not pods or (pending and not _goes_on_without(pending, progress)):
        return "waiting", describe_pods(pending), _earliest(pending)
    trouble = next((p.trouble for p in progresses if _is_in_trouble(p, progress)), "")
    if trouble:
        return "recovering", trouble, None
    waits_for = next((p.waits_for for p in progresses if p.waits_for), "")
    if progress.step is None:
        if not progresses:
            return "unknown", seen.unseen or "the pods have written nothing yet", None
        if unseen := next((p.unseen for p in progresses if p.unseen), ""):
            return "training", unseen, None
        return "starting", waits_for or "no step yet", _earliest(pods)
    if progress.hang:
        return "stalled", progress.hang, progress.stepped_at
    saving, since = _saving(progress), progress.saving_at
    silent = (now - progress.stepped_at).total_seconds() if progress.stepped_at else 0.0
    if silent > STALLED_SECONDS:  # also while training waits for a save, which may never end
        return "stalled", _joined("no step is reported any more", saving), progress.stepped_at
    if progress.saving_holds:
        return "saving", saving, since
    usual = progress.seconds_between_reports
    if usual is not None and silent > quiet_after(usual):
        words = f"no step is reported; one came every {usual:.1f} s"
        return "quiet", _joined(words, saving), progress.stepped_at
    if pending:
        count = f"with {len(pods) - len(pending)} of {len(pods)} pods"
        words = f"{count}: {describe_pods(pending)}"
        return "training", _joined(words, saving), _earliest(pending)
    return "training", waits_for or saving, since if saving and not waits_for else None


def quiet_after(usual: float) -> float:
    """Return after how many seconds without a step a run is quiet.

    `usual` is the usual time between two reported steps, in seconds.
    """
    return max(QUIET_STEPS * usual, QUIET_SECONDS)


def _saves_before_it_ends(seen: Seen, now: datetime) -> str:
    """Return a text if a run that was told to end still writes a checkpoint; else empty.

    It is also empty if the save takes longer than STALLED_SECONDS.
    """
    progress, lives = leading(seen), any(is_running(pod) for pod in seen.pods)
    if not lives or progress.saving_at is None:
        return ""
    is_long = (now - progress.saving_at).total_seconds() > STALLED_SECONDS
    then = f"waits {seen.queued.words}" if seen.queued else "ends"
    return "" if is_long else f"{_saving(progress)}; then it {then}"


def before_their_restarts(pods: Sequence[Json]) -> list[Progress]:
    """Return the progress in the last lines of containers that were restarted in their pods.

    The log of such a pod begins anew, but Kubernetes keeps the last lines in the pod's status.
    """
    ends = [
        str(part(status, "lastState", "terminated").get("message") or "")
        for pod in pods
        for status in parts(part(pod, "status"), "containerStatuses")
    ]
    without_times = [[f"- {line}" for line in text.split("\n")] for text in ends]
    return [read_progress("\n".join(lines)) for lines in without_times]


def _saving(progress: Progress) -> str:
    """Return a text about a checkpoint that is being written; empty if none is."""
    if progress.saving_step is None:
        return ""
    holds = ", and training waits for it" if progress.saving_holds else ""
    return f"checkpoint step {progress.saving_step} is being written{holds}"


def _joined(*words: str) -> str:
    return "; ".join(text for text in words if text)


def _goes_on_without(pending: list[Json], progress: Progress) -> bool:
    """Whether the run has made a step since the pending pods were made.

    With run.train.nodes_min, a run can train without all of its pods.
    """
    made = [datetime.fromisoformat(part(pod, "metadata")["creationTimestamp"]) for pod in pending]
    return progress.stepped_at is not None and progress.stepped_at > max(made)


def _is_in_trouble(one: Progress, leading: Progress) -> bool:
    """Whether the trouble of one pod still lasts.

    Only node 0 reports steps. So the trouble of another pod is over once node 0 has reported a
    later step.
    """
    if one.round_is_lost or not one.trouble or not one.trouble_at or not leading.stepped_at:
        return bool(one.trouble)
    return one.trouble_at > leading.stepped_at


def _earliest(pods: list[Json]) -> datetime | None:
    times = [str(part(pod, "metadata").get("creationTimestamp") or "") for pod in pods]
    return min((datetime.fromisoformat(text) for text in times if text), default=None)
