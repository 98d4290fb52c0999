"""A run in the queue of its own platform, and the network devices that the queue has to cover."""

from typing import Any

import pytest

from tests.unit.settings.reading import read, refusal

RDMA = "rdma/hca"
RUN: dict[str, Any] = {
    "topology": "indexed-job",
    "pods": 2,
    "gpus": 16,
    "gpusPerPod": 8,
    "queue": "gpus",
    "network": "rdma",
    "networkOptions": {"resource": RDMA, "devices": 4},
}
OWN_KUEUE = {"controllers": ["kueue"]}


def queues(**quota: object) -> dict[str, Any]:
    """Return the setting of a queue with this quota."""
    return {"queues": {"name": "gpus", "quota": quota}}


@pytest.mark.parametrize("more", [OWN_KUEUE, {"k3sExisting": "adopt"}])
def test_quota_below_the_devices_of_the_run_is_refused(more: dict[str, Any]) -> None:
    """A quota that the run's devices exceed is refused. Otherwise `up` would end the former run,
    and then say that the new one never starts.
    """
    said = refusal({**RUN, **queues(**{RDMA: 7}), **more})
    assert (
        "queues.quota.rdma/hca: '7' cannot be used: the run of this stack is in queue gpus and "
        "asks for 8 of it (network: rdma), and would wait for ever. Set at least 8."
    ) in said
    assert read({**RUN, **queues(**{RDMA: 8}), **more}).run


def test_devices_without_a_quota_are_refused_by_the_platforms_own_kueue() -> None:
    """Kueue starts no run that asks for a resource without a quota. The configuration of a Kueue
    that others have installed may leave such resources out, so nothing is refused there.
    """
    said = refusal({**RUN, **queues(), **OWN_KUEUE})
    assert (
        "queues.quota.rdma/hca: '' cannot be used: the run of this stack is in queue gpus and asks "
        "for 8 of it (network: rdma), and Kueue starts no run that asks for a resource without a "
        "quota. Set at least 8: pulumi config set --path 'queues.quota[\"rdma/hca\"]' 8."
    ) in said
    assert read({**RUN, **queues(), "k3sExisting": "adopt"}).run
    assert read({**RUN, **queues(), **OWN_KUEUE, "queue": ""}).run
    plain = {"network": "pod-tcp", "networkOptions": {}}
    assert read({**RUN, **queues(), **OWN_KUEUE, **plain}).run


def test_wrong_options_of_the_network_are_one_message() -> None:
    """Where the options are wrong, nothing is said about devices that are not known."""
    options = {"networkOptions": {"resource": RDMA, "devices": 0}}
    said = refusal({**RUN, **queues(), **OWN_KUEUE, **options})
    assert "networkOptions.devices" in said
    assert "queues.quota" not in said
