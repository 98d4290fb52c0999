"""Names a run's workload and reads its state from its object, whatever its kind.

The workload is the one Kubernetes object that makes all pods of a training, such as a Job, a
StatefulSet or a JobSet. All functions are pure.
"""

from dataclasses import dataclass
from typing import Any, cast

from infra.kube.objects import Json, part, parts

GIVEN_UP = ("Failed", "Terminated")  # the condition types that mean failure; the 2nd is Volcano's
GOES_ON = "MPIJobEvicted"
"""The reason of a failure that does not end a run.

The MPI Operator notes it when a worker was evicted, and never takes it back. But it ends no pod,
and makes a new worker when the evicted pod is deleted. When the run is over, `completionTime` is
set too.
"""


@dataclass(frozen=True)
class Workload:
    """The kind and the name of one workload."""

    api_version: str
    kind: str
    name: str

    @staticmethod
    def from_json(given: dict[str, Any]) -> "Workload":
        """Read the JSON object of `to_json`. Raises ValueError: a field is missing."""
        for name in ("api_version", "kind", "name"):
            if not given.get(name):
                raise ValueError(f"the job's field 'workload' has no {name!r}: {given!r}")
        return Workload(str(given["api_version"]), str(given["kind"]), str(given["name"]))

    def to_json(self) -> dict[str, str]:
        """The JSON object from which `from_json` makes this value."""
        return {"api_version": self.api_version, "kind": self.kind, "name": self.name}

    @property
    def typed(self) -> str:
        """The kind in the form in which kubectl accepts it.

        For Volcano's Job it includes the API group, because Kubernetes has its own kind Job.
        """
        group = self.api_version.rpartition("/")[0]
        kind = self.kind.lower()
        return f"{kind}.{group}" if (kind, group) == ("job", "batch.volcano.sh") else kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def is_applied(patch: Json, item: Json) -> bool:
    """Whether a JSON merge patch would change nothing in an object.

    A workload is suspended if the suspend patch of its kind would change nothing.
    """
    for key, value in patch.items():
        if isinstance(value, dict):
            inner = item.get(key)
            if not isinstance(inner, dict):
                return False
            if not is_applied(cast(Json, value), cast(Json, inner)):
                return False
        elif item.get(key) != value:  # null in a merge patch removes the field
            return False
    return True


def is_switch(change: Json) -> bool:
    """Whether a change can do no more than suspend or resume a workload.

    It is a command, or a merge patch that sets numbers, true, false or null below `spec`, and
    nothing in the template of a pod.
    """

    def is_plain(key: str, value: object) -> bool:
        if isinstance(value, dict):
            inner = cast(Json, value).items()
            return "template" not in key.lower() and all(is_plain(*each) for each in inner)
        return value is None or isinstance(value, bool | int)

    is_patch = change.keys() <= {"spec"} and all(is_plain(*each) for each in change.items())
    return is_patch or change.keys() == {"command", "phases"}


def is_suspended(item: Json, suspend: Json) -> bool:
    """Whether a workload is suspended.

    Args:
        item: the workload.
        suspend: the suspend patch of its kind. For a kind that a command suspends (Volcano's Job),
            this is no patch, and its `phases` are the phases that mean suspended.
    """
    if "phases" in suspend:
        return phase_of(item) in cast(list[str], suspend["phases"])
    return bool(suspend) and is_applied(suspend, item)


def phase_of(item: Json) -> str:
    """The phase of a Job of Volcano, such as `Running`; empty for all other kinds."""
    return str(part(item, "status", "state").get("phase") or "")


def true_condition(item: Json, types: list[str]) -> str:
    """The first true condition among `types` as `Type: reason: message`; empty: none is true.

    A Job of Volcano has a phase instead of such conditions.
    """
    status = part(item, "status")
    phase = {**part(status, "state"), "type": phase_of(item), "status": "True"}
    for condition in (*parts(status, "conditions"), phase):
        if condition.get("reason") == GOES_ON and not status.get("completionTime"):
            continue
        if condition.get("type") in types and condition.get("status") == "True":
            words = [str(condition[key]) for key in ("reason", "message") if condition.get(key)]
            return ": ".join([str(condition["type"]), *words])
    return ""


def failed_condition(item: Json, over: list[str]) -> str:
    """The text of `true_condition` for a workload that has failed; empty: it has not failed.

    Args:
        item: the workload.
        over: the condition types that mean that the workload has finished or failed.
    """
    condition = true_condition(item, over)
    return condition if condition.startswith(GIVEN_UP) else ""


def is_active(item: Json | None, suspend: Json, over: list[str]) -> bool:
    """Whether a workload exists, is not suspended and has neither finished nor failed.

    Args:
        item: the workload; None: it does not exist.
        suspend: the suspend patch of its kind.
        over: the condition types that mean that the workload has finished or failed.
    """
    if item is None or is_suspended(item, suspend):
        return False
    return not true_condition(item, over)
