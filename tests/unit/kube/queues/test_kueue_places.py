"""Kueue's count of machines beside those of the pods, in both versions of its Workloads (E7)."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.queues.kueue_places import assigned_machines, words_of_other_places
from infra.kube.queues.kueue_places import words_of_places as words
from infra.names import HOSTNAME_LABEL, QUEUE_LABEL, REQUIRED_PLACE
from tests.unit.kube.server import ApiServer, api_of

RACK = "example.com/rack"
Json = dict[str, Any]


def assigned(*given: Json) -> Json:
    """A Workload with one group of pods for each assignment."""
    groups = [
        {"name": f"g{number}", "topologyAssignment": each} for number, each in enumerate(given)
    ]
    return {"status": {"admission": {"podSetAssignments": groups}}}


def older(**counts: int) -> Json:
    domains = [{"values": ["r", name], "count": count} for name, count in counts.items()]
    return {"levels": [RACK, HOSTNAME_LABEL], "domains": domains}


def newer(values: Json, counts: Json, domains: int) -> Json:
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
    """Those of all groups of pods; of a queue that ends with racks there are none."""
    assert assigned_machines(assigned(given)) == machines
    twice = {name: 2 * count for name, count in machines.items()}
    assert assigned_machines(assigned(given, given)) == twice
    assert assigned_machines({"status": {}}) == {}


def pod(machine: str, phase: str = "Running", **metadata: str) -> Json:
    return {
        "metadata": {"annotations": {REQUIRED_PLACE: RACK}, **metadata},
        "spec": {"nodeSelector": {HOSTNAME_LABEL: machine}},
        "status": {"phase": phase},
    }


def test_pod_that_kueue_counts_elsewhere_has_a_sentence() -> None:
    """As kueue#12735 has it: the machine `a` was silent, and came back with its pod."""
    found = words_of_other_places(assigned(older(b=1, c=1)), [pod("a"), pod("b")])
    assert found.startswith("Kueue counts c for pods that are on a, so it may give their room to")
    assert "(kueue#12735" in found
    assert "./disttrain stop and then ./disttrain resume" in found


@pytest.mark.parametrize("pods", [["a", "b"], ["b"], []])
def test_pods_where_kueue_counts_them_have_none(pods: list[str]) -> None:
    """Nor has a run of which a pod is on its way."""
    assert words_of_other_places(assigned(older(a=1, b=1)), [pod(name) for name in pods]) == ""
    assert words_of_other_places({"status": {}}, [pod(name) for name in pods]) == ""


class Server(ApiServer):
    """Has a Workload, and counts what it is asked."""

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
    server = Server()
    api = api_of(server)
    item = {"metadata": {"uid": "u", "labels": {QUEUE_LABEL: queue}}}
    assert bool(words(api, "disttrain", item, pods)) == asks
    assert bool(server.asked) == asks
