"""`network: multus` on a cluster with the real Multus: the ranks use the second network."""

from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import people_run
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.second_network import DEFINITION, make_network, multus

RUN, NETWORK = "e2e-second-network", "fast"
PODS = 3


@pytest.fixture
def stack(lab: Lab) -> Iterator[Stack]:
    asked = {"topology": "multi-pod", "pods": str(PODS), "network": "multus"}
    options = {"networkOptions.attachments": f"default/{NETWORK}"}
    made = lab.stack(RUN, "sandbox", {**run_settings(RUN, ENDLESS), **asked, **options})
    yield made
    made.destroy()


def refusal(stack: Stack) -> str:
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    return str(refused.value)


def test_ranks_of_pods_use_second_network(lab: Lab, stack: Stack) -> None:
    """The pods get the second network, and the ranks send their gradients over it.

    Before, the same settings are refused: first because the cluster has no Multus, and then because
    it has no such network. In both cases the pods would never have started.
    """
    assert f"second network default/{NETWORK}, and this cluster has no Multus" in refusal(stack)
    with multus(lab):
        assert f"second network {NETWORK}, and the namespace default has no" in refusal(stack)
        make_network(lab, NETWORK)
        stack.up()
        wait_for("a checkpoint", lambda: max(lab.losses(RUN), default=0) > 20, 300)
        first, since = sent(lab), max(lab.losses(RUN))
        wait_for("20 more steps", lambda: max(lab.losses(RUN)) > since + 20, 300)
        now = sent(lab)
        grown = {name: now[name] - first[name] for name in now}
        assert grown["net1"] > 10 * grown["eth0"], grown
        said = people_run(lab, stack, f"./disttrain verify --stack {stack.name}")
        assert "gloo by TCP over net1" in said
        stack.destroy()
    assert DEFINITION not in lab.kubectl("get", "crd", "-o", "name")


def sent(lab: Lab) -> dict[str, int]:
    """Return how many bytes the pod of rank 1 has sent over each of its interfaces."""
    path = "/sys/class/net/{}/statistics/tx_bytes"
    files = [path.format(name) for name in ("eth0", "net1")]
    said = lab.kubectl("exec", "train-multipod-1", "-c", "trainer", "--", "cat", *files)
    return dict(zip(("eth0", "net1"), map(int, said.split()), strict=True))
