"""Which NetworkPolicies keep the pods of a run from each other. No cluster is asked."""

from typing import Any

import pytest

from infra.kube.pods.network_policies import WAYS, closed_ways

POD = {"app.kubernetes.io/name": "disttrain", "team": "ml"}
HERE = {"kubernetes.io/metadata.name": "ml"}
BOTH = ["Ingress", "Egress"]
ACCEPT, CONNECT, DNS = (way.does for way in WAYS)
OF_RUN = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "disttrain"}}}
OTHERS = {"podSelector": {"matchLabels": {"app": "web"}}}
NAMES = {"ports": [{"protocol": "UDP", "port": 53}]}
HIGH = [{"protocol": "TCP", "port": 1024, "endPort": 65535}]


def policy(name: str, types: list[str], **spec: Any) -> dict[str, Any]:
    given = {"podSelector": {}, "policyTypes": types, **spec}
    return {"metadata": {"name": name}, "spec": given}


DENY = policy("deny", BOTH)


@pytest.mark.parametrize(
    ("policies", "closed"),
    [
        ([], {}),
        ([DENY], {ACCEPT: ["deny"], CONNECT: ["deny"], DNS: ["deny"]}),
        ([policy("in", ["Ingress"])], {ACCEPT: ["in"]}),
        # A policy for other pods does not isolate those of the run.
        ([policy("web", BOTH, podSelector=OTHERS["podSelector"])], {}),
        # One policy that allows is enough.
        ([DENY, policy("all", BOTH, ingress=[{}], egress=[{}])], {}),
        ([policy("in", ["Ingress"]), policy("run", ["Ingress"], ingress=[{"from": [OF_RUN]}])], {}),
        ([policy("web", ["Ingress"], ingress=[{"from": [OTHERS]}])], {ACCEPT: ["web"]}),
        ([policy("out", ["Egress"], egress=[{"to": [OF_RUN]}, NAMES])], {}),
        ([policy("out", ["Egress"], egress=[NAMES])], {CONNECT: ["out"]}),
        # The pods of the DNS are in another namespace.
        ([policy("out", ["Egress"], egress=[{"to": [OF_RUN]}])], {DNS: ["out"]}),
        # One open port is not enough, because the ranks connect at ports that Linux chooses.
        (
            [policy("one", ["Ingress"], ingress=[{"from": [OF_RUN], "ports": [{"port": 29500}]}])],
            {ACCEPT: ["one"]},
        ),
        ([policy("in", ["Ingress"], ingress=[{"from": [OF_RUN], "ports": HIGH}])], {}),
        ([policy("in", ["Ingress"], ingress=[{"ports": [{"protocol": "UDP"}]}])], {ACCEPT: ["in"]}),
        # It cannot be known whether these are addresses of pods.
        (
            [policy("in", ["Ingress"], ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])],
            {},
        ),
        (
            [policy("in", ["Ingress"], ingress=[{"from": [{"namespaceSelector": {}}]}])],
            {},
        ),
        (
            [
                policy(
                    "ops",
                    ["Ingress"],
                    ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}],
                )
            ],
            {ACCEPT: ["ops"]},
        ),
        (
            [
                policy(
                    "in",
                    ["Ingress"],
                    podSelector={
                        "matchExpressions": [
                            {"key": "team", "operator": "In", "values": ["ml"]},
                            {"key": "free", "operator": "DoesNotExist"},
                        ]
                    },
                )
            ],
            {ACCEPT: ["in"]},
        ),
    ],
)
def test_closed_ways_are_found(
    policies: list[dict[str, Any]], closed: dict[str, list[str]]
) -> None:
    """Only ways that are surely closed are reported, because a false alarm would send the user to
    the administrator.
    """
    assert closed_ways(policies, POD, HERE) == closed


def test_unknown_namespace_counts_as_open() -> None:
    """If the labels of the run's namespace are hidden from the user, a rule for namespaces counts
    as one that allows the pods.
    """
    rule = {"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}
    assert closed_ways([policy("ops", ["Ingress"], ingress=[rule])], POD, None) == {}
