"""The clocks of nodes against that of the API server, and times that are moved to the latter. Pure.

Kubernetes gives the lines of a pod with times by the clock of its node. What is judged by their age
would be wrong by as much as that clock is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from math import ceil

from cli.status.judge import STALLED_SECONDS, quiet_after
from cli.status.progress import Progress
from cli.status.silence import renewed_at
from infra.kube.objects import Json, name_of, part, parts

# Less is no difference: the server's note has whole seconds, and the request takes a moment.
NOISE_SECONDS = 2.0
LONGEST_SECONDS = 86400  # by which a clock that is ahead can be measured by the age of a line


def clocks_ahead(leases: Sequence[Json]) -> Mapping[str, float]:
    """By how many seconds the clock of each node is ahead of the API server's; negative: behind.

    A lease has the time at which the node renewed it by the node's own clock, and the API server's
    note of when that came. A node is left out where one of the two is not there.

    Args:
        leases: of the namespace kube-node-lease.
    """
    found: dict[str, float] = {}
    for lease in leases:
        own, noted = str(part(lease, "spec").get("renewTime") or ""), renewed_at(lease)
        if own and noted is not None:
            ahead = (datetime.fromisoformat(own) - noted).total_seconds()
            found[name_of(lease)] = ahead if abs(ahead) > NOISE_SECONDS else 0.0
    return found


def by_api_clock(progress: Progress, ahead_seconds: float) -> Progress:
    """This progress with all times by the clock of the API server.

    Args:
        progress: with times by the clock of its node.
        ahead_seconds: by which that one is ahead.
    """
    by = timedelta(seconds=ahead_seconds)
    moved = {
        field.name: value - by
        for field in fields(progress)
        if isinstance(value := getattr(progress, field.name), datetime)
    }
    before = tuple(time - by for time in progress.stepped_before)
    return replace(progress, stepped_before=before, **moved)


def ahead_when_told(pod: Json) -> float:
    """By how many seconds a node's clock was ahead as its pod became ready, or ceased to be.

    The kubelet gives that time by its own clock, and the API server notes when it came. The clock
    may have been set right since, so this is only a reason to ask. 0: one of the two is not there.
    """
    noted = [
        str(note.get("time") or "")
        for note in parts(part(pod, "metadata"), "managedFields")
        if note.get("manager") == "kubelet" and note.get("subresource") == "status"
    ]
    own = [
        str(condition.get("lastTransitionTime") or "")
        for condition in parts(part(pod, "status"), "conditions")
        if condition.get("type") == "Ready"
    ]
    if not (any(noted) and any(own)):
        return 0.0
    return (datetime.fromisoformat(max(own)) - datetime.fromisoformat(max(noted))).total_seconds()


def doubted_age(progress: Progress, now: datetime, ahead_seconds: float = 0.0) -> int:
    """The age, in seconds, that the last step seems to have passed: it may be the clock instead.

    Args:
        progress: with times by the clock of its node.
        now: the API server's time.
        ahead_seconds: by which its clock was ahead before, so that a step may look younger.

    Returns:
        Of a step from the future, or by a clock ahead, an age that it cannot have; 0: nothing looks
        wrong.
    """
    if progress.stepped_at is None:
        return 0
    silent = (now - progress.stepped_at).total_seconds()
    if silent < -NOISE_SECONDS or ahead_seconds > NOISE_SECONDS:
        return LONGEST_SECONDS
    usual = progress.seconds_between_reports
    passed = [STALLED_SECONDS, *([quiet_after(usual)] if usual is not None else [])]
    return ceil(max((seconds for seconds in passed if silent > seconds), default=0))


def ahead_by_age(
    ask: Callable[[int], str], now: Callable[[], datetime], most_seconds: int
) -> float | None:
    """By how much the clock of a node is ahead, by the age of a pod's last line.

    The kubelet takes the lines of the last seconds by the clock by which their times are.

    Args:
        ask: gives the last line, with its time, if it is not older than so many seconds; else an
            empty text.
        now: the API server's time.
        most_seconds: the first age that is asked for.

    Returns:
        None: the line is older, or has no time.
    """
    line, least, most = ask(most_seconds), 0, most_seconds
    while line and most - least > 1:
        middle = (least + most) // 2
        if newer := ask(middle):
            line, most = newer, middle
        else:
            least = middle
    try:
        written = datetime.fromisoformat(line.partition(" ")[0])
    except ValueError:
        return None
    ahead = (written - now()).total_seconds() + most
    return ahead if abs(ahead) > NOISE_SECONDS else 0.0
