"""What a workload is and does, whatever its kind. Pure: judges objects of the API."""

from dataclasses import dataclass
from typing import Any, cast

from infra.kube.objects import Json, part, parts

GIVEN_UP = ("Failed", "Terminated")  # of a workload that was given up; the second is Volcano's


@dataclass(frozen=True)
class Workload:
    """Names one object."""

    api_version: str
    kind: str
    name: str

    @staticmethod
    def from_json(given: dict[str, Any]) -> "Workload":
        """Raises ValueError: a field is missing."""
        for name in ("api_version", "kind", "name"):
            if not given.get(name):
                raise ValueError(f"the job's field 'workload' has no {name!r}: {given!r}")
        return Workload(str(given["api_version"]), str(given["kind"]), str(given["name"]))

    def to_json(self) -> dict[str, str]:
        """The opposite of from_json."""
        return {"api_version": self.api_version, "kind": self.kind, "name": self.name}

    @property
    def typed(self) -> str:
        """Its kind as kubectl takes it: with the group, where others have a kind of that name."""
        group = self.api_version.rpartition("/")[0]
        kind = self.kind.lower()
        return f"{kind}.{group}" if (kind, group) == ("job", "batch.volcano.sh") else kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def is_applied(patch: Json, item: Json) -> bool:
    """Whether a JSON merge patch would change nothing. A suspended workload is one to which the
    suspend patch of its kind has been applied already.
    """
    for key, value in patch.items():
        if isinstance(value, dict):
            inner = item.get(key)
            if not isinstance(inner, dict):
                return False
            if not is_applied(cast(Json, value), cast(Json, inner)):
                return False
        elif item.get(key) != value:  # null in a merge patch means: not there
            return False
    return True


def is_suspended(item: Json, suspend: Json) -> bool:
    """Whether the suspend patch of the workload's kind is in force.

    A kind that is suspended by a command has no such patch: it names the phases that mean it.
    """
    if "phases" in suspend:
        return phase_of(item) in cast(list[str], suspend["phases"])
    return bool(suspend) and is_applied(suspend, item)


def phase_of(item: Json) -> str:
    """The state of a Job of Volcano in one word; empty text for every other kind."""
    return str(part(item, "status", "state").get("phase") or "")


def true_condition(item: Json, types: list[str]) -> str:
    """`Type: reason and message` of the first true condition among `types`, else empty text.

    A Job of Volcano has a phase instead of such conditions.
    """
    status = part(item, "status")
    phase = {**part(status, "state"), "type": phase_of(item), "status": "True"}
    for condition in (*parts(status, "conditions"), phase):
        if condition.get("type") in types and condition.get("status") == "True":
            words = [str(condition[key]) for key in ("reason", "message") if condition.get(key)]
            return ": ".join([str(condition["type"]), *words])
    return ""


def failed_condition(item: Json, over: list[str]) -> str:
    """What `true_condition` says of a workload that has failed; empty where it has not.

    Args:
        item: the object.
        over: condition types that mean it has finished or failed.
    """
    condition = true_condition(item, over)
    return condition if condition.startswith(GIVEN_UP) else ""


def is_active(item: Json | None, suspend: Json, over: list[str]) -> bool:
    """Whether a workload exists, is not suspended and has neither finished nor failed.

    Args:
        item: the object, None where there is none.
        suspend: the suspend patch of its kind.
        over: condition types that mean it is over.
    """
    if item is None or is_suspended(item, suspend):
        return False
    return not true_condition(item, over)
