"""What a network profile of the user's own adds to the training pods."""

from pathlib import Path

import pytest

import infra.run.run_value
from infra.names import GPU_RESOURCE, HOST_NETWORK_ANNOTATION
from infra.networks.profile import NetworkProfile
from tests.unit.networks.rendered import Json, training_pods
from tests.unit.pods import broken_rules
from tests.unit.stacks import deploy

OWN = NetworkProfile(
    name="own",
    environment={"NCCL_SOCKET_IFNAME": "ens5"},
    resources={"example.com/nic": "2"},
    annotations={"example.com/network": "fast"},
    host_network=True,
)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Json:
    """Return the template of the pods of a run with that profile."""
    monkeypatch.setattr(infra.run.run_value, "NETWORKS", {"pod-tcp": OWN})
    (found,) = training_pods(deploy("dev", tmp_path))
    return found


def test_profile_adds_all_that_it_names(pod: Json) -> None:
    (container,) = pod["spec"]["containers"]
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "ens5"} in container["env"]
    assert container["resources"]["limits"] == {GPU_RESOURCE: "3", "example.com/nic": "2"}
    assert pod["metadata"]["annotations"]["example.com/network"] == "fast"


def test_pod_in_the_network_of_its_node_still_finds_services(pod: Json) -> None:
    """A pod that uses the network of its node asks the cluster's DNS. Otherwise it would ask that
    of the node, and never find the other pods. Its annotation says why it needs that network, so it
    breaks none of the rules for pods.
    """
    assert pod["spec"]["hostNetwork"] is True
    assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod["metadata"]["annotations"][HOST_NETWORK_ANNOTATION] == "own"
    assert [rule.id for rule in broken_rules(pod)] == []
