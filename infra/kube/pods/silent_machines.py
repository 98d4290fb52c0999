"""Finds pods that should have ended but cannot, because their machines do not answer.

Kubernetes asks the machine to end a pod, and keeps the pod's object until the machine confirms the
end. A machine that is switched off never confirms it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError
from infra.kube.objects import Json, condition, machine_of, name_of, part
from infra.kube.paths import NODES
from infra.kube.pods.report import describe_pods


def silent_machines(api: Api, pods: Sequence[Json]) -> Mapping[str, str]:
    """The machines that do not answer, among those with overdue pods.

    The result is empty if these credentials may not read nodes.

    Returns:
        Since when each machine has not answered, by the machine's name.
    """
    found: dict[str, str] = {}
    for name in sorted({machine_of(pod) for pod in overdue(pods, api.now())}):
        try:
            node = api.get(f"{NODES}/{name}") if name else None
        except ApiError as error:
            if error.status == FORBIDDEN:
                return {}
            raise
        if node and has_been_missed(node):
            since = condition(node, "Ready").get("lastTransitionTime")
            found[name] = str(since or "an unknown time")
    return found


def has_been_missed(node: Json) -> bool:
    """Whether Kubernetes itself has noticed that the node does not report."""
    return condition(node, "Ready").get("status") == "Unknown"


def overdue(pods: Sequence[Json], now: datetime) -> list[Json]:
    """The pods that should have ended before `now`.

    Kubernetes writes into `deletionTimestamp` when a pod's grace period ends.
    """
    times = [(pod, str(part(pod, "metadata").get("deletionTimestamp") or "")) for pod in pods]
    return [pod for pod, end in times if end and datetime.fromisoformat(end) < now]


def describe(machines: Mapping[str, str]) -> str:
    """The machines and since when they have not answered, as text; empty: there are none."""
    said = [f"machine {name} has not answered since {since}" for name, since in machines.items()]
    return ", ".join(said)


def pods_and_machines(pods: list[Json], machines: Mapping[str, str]) -> str:
    """The state of the pods and the machines that do not answer, as text; empty: no pods."""
    said = describe_pods(pods) if pods else ""
    return f"{said}; {describe(machines)}" if pods and machines else said


def stranded(pods: Sequence[Json], machines: Mapping[str, str]) -> str:
    """The message about pods that cannot end: which they are, why, and what to do."""
    names = [name_of(pod) for pod in pods if machine_of(pod) in machines]
    namespace = next((str(pod["metadata"]["namespace"]) for pod in pods), "")
    return (
        f"{', '.join(names)} cannot end, because {describe(machines)}. If the machine comes back, "
        "they end by themselves. If it is off, remove them by `kubectl delete pod "
        f"{' '.join(names)} --namespace {namespace} --grace-period=0 --force`. Then type the "
        "command again."
    )
