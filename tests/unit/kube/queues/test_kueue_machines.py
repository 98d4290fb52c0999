"""Whether Kueue counts the pods of a run on the machines where they are, in both versions of its
Workloads.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.queues.kueue_machines import assigned_machines, words_of_other_machines
from infra.kube.queues.kueue_machines import words_of_machines as words
from infra.names import HOSTNAME_LABEL, QUEUE_LABEL, REQUIRED_TOPOLOGY
from tests.unit.kube.server import ApiServer, api_of

RACK = "example.com/rack"
Json = dict[str, Any]


def assigned(*given: Json) -> Json:
    """Return a Workload with one group of pods for each topology assignment."""
    groups = [
        {"name": f"g{number}", "topologyAssignment": each} for number, each in enumerate(given)
    ]
    return {"status": {"admission": {"podSetAssignments": groups}}}


def older(**counts: int) -> Json:
    """Return a topology assignment as v1beta1 writes it, with the number of pods of each
    machine.
    """
    domains = [{"values": ["r", name], "count": count} for name, count in counts.items()]
    return {"levels": [RACK, HOSTNAME_LABEL], "domains": domains}


def newer(values: Json, counts: Json, domains: int) -> Json:
    """Return a topology assignment as v1beta2 writes it, with one slice."""
    some = {
        "domainCount": domains,
        "valuesPerLevel": [{"universal": "r"}, values],
        "podCounts": counts,
    }
    return {"levels": [RACK, HOSTNAME_LABEL], "slices": [some]}


@pytest.mark.parametrize(
    ("given", "machines"),
    [
        (older(a=1, b=2), {"a": 1, "b": 2}),
        (newer({"universal": "a"}, {"universal": 3}, 1), {"a": 3}),
        (
            newer({"individual": {"roots": ["a", "b"]}}, {"individual": [1, 2]}, 2),
            {"a": 1, "b": 2},
        ),
        (
            newer(
                {"individual": {"prefix": "gpu-", "suffix": ".lan", "roots": ["1", "2"]}},
                {"universal": 1},
                2,
            ),
            {"gpu-1.lan": 1, "gpu-2.lan": 1},
        ),
        ({"levels": [RACK], "domains": [{"values": ["r"], "count": 2}]}, {}),
    ],
)
def test_machines_that_kueue_counts(given: Json, machines: dict[str, int]) -> None:
    """The counted pods of each machine are summed up over all groups of pods. A topology whose
    lowest level is racks counts no machines.
    """
    assert assigned_machines(assigned(given)) == machines
    twice = {name: 2 * count for name, count in machines.items()}
    assert assigned_machines(assigned(given, given)) == twice
    assert assigned_machines({"status": {}}) == {}


def pod(machine: str, phase: str = "Running", **metadata: str) -> Json:
    return {
        "metadata": {"annotations": {REQUIRED_TOPOLOGY: RACK}, **metadata},
        "spec": {"nodeSelector": {HOSTNAME_LABEL: machine}},
        "status": {"phase": phase},
    }


def test_pod_that_kueue_counts_elsewhere_has_a_sentence() -> None:
    """A pod on another machine than Kueue counts gets a sentence with the way out. This happens if
    the machine was silent for some time and then came back with its pod (kueue#12735).
    """
    found = words_of_other_machines(assigned(older(b=1, c=1)), [pod("a"), pod("b")])
    assert found.startswith("Kueue counts c for pods that are on a, so it may give their room to")
    assert "(kueue#12735" in found
    assert "./disttrain stop and then ./disttrain resume" in found


@pytest.mark.parametrize("pods", [["a", "b"], ["b"], []])
def test_pods_where_kueue_counts_them_have_none(pods: list[str]) -> None:
    """Nothing is said of pods on the machines that Kueue counts, nor of a run whose other pods are
    not there yet.
    """
    assert words_of_other_machines(assigned(older(a=1, b=1)), [pod(name) for name in pods]) == ""
    assert words_of_other_machines({"status": {}}, [pod(name) for name in pods]) == ""


class Server(ApiServer):
    """A stand-in for a cluster with one Workload. It records the paths of all requests."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json:
        del method, query, body
        self.asked.append(path)
        return {"versions": [{"version": "v1beta2"}], "items": [assigned(older(c=1))]}


@pytest.mark.parametrize(
    ("pods", "queue", "asks"),
    [
        ([pod("a")], "gpus", True),
        ([pod("a")], "", False),
        ([{**pod("a"), "metadata": {}}], "gpus", False),
        ([pod("a", "Pending"), pod("a", deletionTimestamp="now")], "gpus", False),
    ],
)
def test_kueue_is_asked_only_of_a_run_that_it_has_placed(
    pods: list[Json], queue: str, asks: bool
) -> None:
    """Kueue's Workload is read only for a run in a queue that has a running pod with a wish about
    its place.
    """
    server = Server()
    api = api_of(server)
    item = {"metadata": {"uid": "u", "labels": {QUEUE_LABEL: queue}}}
    assert bool(words(api, "disttrain", item, pods)) == asks
    assert bool(server.asked) == asks
