"""Measures how wrong the clocks of nodes are, and corrects times. This module is pure.

Kubernetes gives the lines of a pod's log with times by the clock of the pod's node. If that clock
is wrong, the ages of the lines are wrong too. So the times are moved to the API server's clock.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from math import ceil

from cli.status.judge import STALLED_SECONDS, quiet_after
from cli.status.progress import Progress
from cli.status.silence import renewed_at
from infra.kube.objects import Json, name_of, part, parts

# A smaller difference counts as none: the API server notes times in whole seconds, and a request
# takes a moment.
NOISE_SECONDS = 2.0
LONGEST_SECONDS = 86400  # the largest lead of a clock that the age of a line can show


def clocks_ahead(leases: Sequence[Json]) -> Mapping[str, float]:
    """Return by how many seconds each node's clock is ahead of the API server's.

    The number is negative for a clock that is behind. A node's lease has the time of its last
    renewal by the node's own clock, and the API server's note of when the renewal came. A node is
    left out if one of the two is missing.

    Args:
        leases: the leases of the namespace kube-node-lease.
    """
    found: dict[str, float] = {}
    for lease in leases:
        own, noted = str(part(lease, "spec").get("renewTime") or ""), renewed_at(lease)
        if own and noted is not None:
            ahead = (datetime.fromisoformat(own) - noted).total_seconds()
            found[name_of(lease)] = ahead if abs(ahead) > NOISE_SECONDS else 0.0
    return found


def by_api_clock(progress: Progress, ahead_seconds: float) -> Progress:
    """Return the progress with all times by the clock of the API server.

    Args:
        progress: the progress, with times by the clock of its node.
        ahead_seconds: by how many seconds the node's clock is ahead of the API server's.
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
    """Return by how many seconds a node's clock was ahead when its pod last became (un)ready.

    The kubelet reports that time by its own clock, and the API server notes when the report came.
    The clock may have been corrected since, so this is only a reason for a closer look. The result
    is 0 if one of the two times is missing.
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


def doubted_age(progress: Progress, now: datetime, ahead_seconds: float) -> int:
    """Return the age of the last step that a wrong clock may explain, in seconds.

    Args:
        progress: the progress, with times by the clock of its node.
        now: the API server's time.
        ahead_seconds: by how many seconds the node's clock was ahead at an earlier time. With such
            a clock a step looks younger than it is.

    Returns:
        The limit that the step's age has exceeded: that of a stalled or of a quiet run.
        LONGEST_SECONDS if the step is in the future, or if the clock was ahead. 0 if nothing looks
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
    """Measure by how many seconds a node's clock is ahead, by the age of a pod's last line.

    If the kubelet is asked for the lines of the last seconds, it uses the clock that also gave the
    lines their times. So a search for the smallest age that still returns the line finds its age by
    that clock.

    Args:
        ask: returns the last line, with its time, if it is not older than this many seconds; else
            an empty text.
        now: returns the API server's time.
        most_seconds: the first age to ask for.

    Returns:
        The seconds, or None if the line is older than `most_seconds` or has no time.
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
