"""Says which NetworkPolicies of a namespace keep the pods of a run from reaching each other.

A NetworkPolicy has an effect only where the cluster's network enforces it, which the API does not
tell. So nothing is refused because of one. Policies of other kinds, such as Cilium's and Calico's
own, are not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at, objects_at
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.paths import NAMESPACES
from infra.names import MASTER_PORT

POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
PAGE = "docs/clusters.md#network-policies"
# Ranks listen at MASTER_PORT, and at ports that Linux chooses. This is the last of these.
LAST_PORT = 60999

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """Connections that a run of several pods needs.

    Args:
        does: what its pods do by them, as a verb with its object.
        direction: the direction in which a pod needs them, with Kubernetes' word for it.
        to_run: whether they are between pods of the run.
        ports: the first and the last port.
        protocol: the protocol.
    """

    does: str
    direction: str
    to_run: bool
    ports: tuple[int, int]
    protocol: str = "TCP"


WAYS = (
    Way("accept connections of each other", "Ingress", True, (MASTER_PORT, LAST_PORT)),
    Way("connect to each other", "Egress", True, (MASTER_PORT, LAST_PORT)),
    Way("look up each other's names (DNS)", "Egress", False, (53, 53), "UDP"),
)


def network_findings(api: Api, namespace: str, pod: Json, pods: int) -> Findings:
    """Look whether the namespace's policies let the pods of a run reach each other.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        pod: the manifest of one of the run's pods.
        pods: the number of its pods. A single pod has none to reach.
    """
    found = Findings()
    if pods == 1 or part(pod, "spec").get("hostNetwork"):
        return found
    policies = objects_at(api, POLICIES.format(namespace))
    if not policies:  # There is none, or these credentials may not list them.
        return found
    there = object_at(api, f"{NAMESPACES}/{namespace}")
    of_namespace = part(there, "metadata", "labels") if isinstance(there, dict) else None
    closed = closed_ways(policies, part(pod, "metadata", "labels"), of_namespace)
    if closed:
        ways = "; ".join(f"{way} (NetworkPolicy {', '.join(it)})" for way, it in closed.items())
        found.notes.append(
            f"namespace {namespace} does not let the run's pods {ways}. Where the cluster enforces "
            "its policies, the run would wait in vain for all of its pods. Whoever runs the "
            f"cluster can allow it: {PAGE}"
        )
    return found


def closed_ways(
    policies: Sequence[Json], labels: Labels, of_namespace: Labels | None
) -> dict[str, list[str]]:
    """What the policies do not let the pods of a run do, each with the policies' names.

    A connection is possible if one of the policies that select the pod allows it. What cannot be
    known here, such as who has the addresses of a rule, counts as allowed. This function is pure.

    Args:
        policies: the NetworkPolicies of the pods' namespace.
        labels: the labels of the pods.
        of_namespace: the labels of their namespace; None: they are not known.
    """
    ours = [each for each in policies if selects(part(each, "spec", "podSelector"), labels)]
    found: dict[str, list[str]] = {}
    for way in WAYS:
        field, key = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[way.direction]
        # A pod that no policy of this direction selects may have every connection.
        isolating = [each for each in ours if way.direction in each["spec"]["policyTypes"]]
        rules = [rule for each in isolating for rule in parts(each["spec"], field)]
        is_open = any(
            _opens(parts(rule, "ports"), way)
            and (
                _is_for_run(parts(rule, key), labels, of_namespace)
                if way.to_run
                else _is_for_others(parts(rule, key))
            )
            for rule in rules
        )
        if isolating and not is_open:
            found[way.does] = sorted(name_of(each) for each in isolating)
    return found


def selects(selector: Json, labels: Labels) -> bool:
    """Whether a label selector of Kubernetes selects an object with these labels."""
    wanted = cast(Labels, part(selector, "matchLabels"))
    expressions = parts(selector, "matchExpressions")
    return wanted.items() <= labels.items() and all(_holds(each, labels) for each in expressions)


def _holds(expression: Json, labels: Labels) -> bool:
    value = labels.get(expression["key"])
    values = cast(list[str], expression.get("values") or [])
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _is_for_others(peers: Sequence[Json]) -> bool:
    """Whether the peers of a rule may include pods of other namespaces, as those of the DNS are."""
    return not peers or any({"ipBlock", "namespaceSelector"} & each.keys() for each in peers)


def _is_for_run(peers: Sequence[Json], labels: Labels, of_namespace: Labels | None) -> bool:
    """Whether the peers of a rule may include the other pods of the run."""
    return not peers or any(_is_run(peer, labels, of_namespace) for peer in peers)


def _is_run(peer: Json, labels: Labels, of_namespace: Labels | None) -> bool:
    if "ipBlock" in peer:
        return True
    is_here = (
        "namespaceSelector" not in peer
        or of_namespace is None
        or selects(part(peer, "namespaceSelector"), of_namespace)
    )
    return is_here and selects(part(peer, "podSelector"), labels)


def _opens(ports: Sequence[Json], way: Way) -> bool:
    """Whether the ports of a rule include all that the way needs. No ports mean every port."""
    of_protocol = [each for each in ports if each.get("protocol", "TCP") == way.protocol]
    return not ports or any(_includes(each, *way.ports) for each in of_protocol)


def _includes(given: Json, first: int, last: int) -> bool:
    begin = given.get("port")
    if begin is None:
        return True
    if isinstance(begin, str):  # A name, which stands for one port of the pods that are reached.
        return first == last
    return begin <= first and last <= int(given.get("endPort", begin))
