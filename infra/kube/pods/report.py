"""Describes the state of pods as text for messages, from their objects. All functions are pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from infra.kube.objects import Json, is_ending, part, parts
from infra.kube.say import first_of, shorten
from trainer.launch.memory_kills import MORE_MEMORY

# The trainer ends with this code if a retry cannot help (trainer/launch/exit_codes.py).
FATAL_EXIT_CODE = 78
OUT_OF_MEMORY = "OOMKilled"  # the reason that Kubernetes gives
MOST_RESTARTS = 3
RARELY_MENDED = (
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
NOT_STARTED = ("StartError", "ContainerCannotRun")
"""The reasons of a container that has ended because its program could not be started."""
# The words of runc and of crun about the programs that the pods of a user's own image start.
_NO_PROGRAM = re.compile(
    r'exec: "(python3|sh)": (?:executable file not found|permission denied)'
    r"|executable file `(python3|sh)` not found"
)


@dataclass(frozen=True)
class PodReport:
    """The state of one pod.

    Args:
        name: the name of the pod.
        ready: whether the pod is ready.
        state: its name and its state, for messages.
        problem: a problem that ends a wait for the pod at once; empty: there is none.
        stuck: a problem that ends a wait only if it lasts; empty: there is none.
    """

    name: str
    ready: bool
    state: str
    problem: str
    stuck: str


def report_pod(pod: Json) -> PodReport:
    """Make the report about one pod."""
    name = str(pod["metadata"]["name"])
    status = part(pod, "status")
    conditions = {c["type"]: c for c in parts(status, "conditions")}
    ready = conditions.get("Ready", {}).get("status") == "True"
    words, problem, stuck = str(status.get("phase") or "Pending"), "", ""
    details = [_words(conditions["PodScheduled"])] if _is_false(conditions, "PodScheduled") else []
    if status.get("reason") or status.get("message"):  # for example Evicted
        details.append(_words(status))
    for container in _containers(status):
        waiting = part(container, "state", "waiting")
        if waiting:
            words = str(waiting.get("reason") or words)
            details.append(str(waiting.get("message") or ""))
        ended = part(container, "state", "terminated")
        if ended.get("reason") in NOT_STARTED:
            details.append(str(ended.get("message") or ""))
        if waiting.get("reason") in RARELY_MENDED:
            stuck = f"pod {name}: {_words(waiting)}"
        if not ready:  # A pod that trains may have been restarted many times in some weeks.
            problem = problem or _problem(name, container)
            details.append(_killed(container))
    text = "; ".join(detail for detail in details if detail)
    if is_ending(pod):
        words = f"{words}, ending"
    state = shorten(f"{name} {words}" + (f" ({text})" if text else ""), 300)
    return PodReport(name, ready, state, shorten(problem, 400), shorten(stuck, 400))


def describe_pods(pods: list[Json]) -> str:
    """The state of the first six pods, and how many more there are, for a message."""
    said = [report_pod(pod).state for pod in pods]
    return first_of(said, 6) or "no pod yet"


def lack_of_memory(pods: list[Json]) -> str:
    """Say which pod of a run was last killed for lack of memory, and what to do; else empty."""
    for pod in pods:
        for container in _containers(part(pod, "status")):
            if words := _killed(container):
                return f"pod {pod['metadata']['name']} was {words}: {MORE_MEMORY}"
    return ""


def _killed(container: Json) -> str:
    ends = (part(container, state, "terminated") for state in ("state", "lastState"))
    if any(ended.get("reason") == OUT_OF_MEMORY for ended in ends):
        return f"killed for lack of memory ({OUT_OF_MEMORY})"
    return ""


def _problem(name: str, container: Json) -> str:
    for state in ("state", "lastState"):
        ended = part(container, state, "terminated")
        if ended.get("exitCode") == FATAL_EXIT_CODE:
            return f"pod {name} ended with exit code {FATAL_EXIT_CODE}: a retry cannot help"
    if program := _missing_program(container):
        return (
            f"pod {name} cannot start: its image has no {program} on its PATH that the pod's user "
            'may run. docs/programs.md, "An image of your own", says what the image of a program '
            "needs"
        )
    restarts = int(container.get("restartCount") or 0)
    if restarts >= MOST_RESTARTS:
        killed = _killed(container)
        why = f" and {killed}: {MORE_MEMORY}" if killed else ""
        return f"pod {name} was started {restarts + 1} times{why}"
    return ""


def _missing_program(container: Json) -> str:
    """Return the program for which a container could not be started; empty if there is none."""
    for state in ("state", "lastState"):
        for kind in ("waiting", "terminated"):
            found = part(container, state, kind)
            if found.get("reason") in (*RARELY_MENDED, *NOT_STARTED):
                words = _NO_PROGRAM.search(str(found.get("message") or ""))
                if words:
                    return words[1] or words[2]
    return ""


def _containers(status: Json) -> Iterator[Json]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from cast(list[Json], status.get(kind) or [])


def _is_false(conditions: dict[str, Json], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "False"


def _words(condition: Json) -> str:
    parts = [str(condition[key]) for key in ("reason", "message") if condition.get(key)]
    return ": ".join(parts)
