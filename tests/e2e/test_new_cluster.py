"""When a platform's k3s was wiped, or is on another host now, one `pulumi up` makes the platform
anew.

The last tests are about `destroy` of a platform without a run; README.md has the whole table. The
tests build on each other in file order.
"""

import json

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes
from tests.e2e.lab import Lab, run_settings
from tests.e2e.remote_node import RemoteNode

pytestmark = pytest.mark.in_order

RUN, STEPS = "e2e-rider", 20
KINDS = "configmap,persistentvolumeclaim,job,pod"


def alone(lab: Lab) -> dict[str, str]:
    """Return settings of a platform without a run, whose `destroy` deletes the data."""
    purge = {"dataOnDestroy": "purge", "purgeConfirmed": str(lab.cluster.data_root)}
    return {"topology": "none", **purge}


@pytest.fixture(scope="module")
def platform(lab: Lab, remote: RemoteNode) -> Stack:
    """Return the stack of a platform that is up and has no run of its own."""
    stack = remote.stack("e2e-platform", alone(lab))
    stack.up()
    return stack


@pytest.fixture(scope="module")
def rider(lab: Lab, platform: Stack) -> Stack:
    settings = {**run_settings(RUN, STEPS), "platform": platform.name}
    stack = lab.stack("e2e-rider", "sandbox-multipod", settings)
    stack.up()
    lab.wait_done(RUN)
    return stack


def test_platform_neither_moves_nor_goes_under_a_run(
    lab: Lab, remote: RemoteNode, platform: Stack, rider: Stack
) -> None:
    """While a run of another stack is on the platform, it can neither move to another host nor be
    destroyed.

    Otherwise the run would be lost with k3s. The refusals write nothing to the host.
    """
    before, files = lab.uids(KINDS), remote.host.files()
    platform.set("sshHost", remote.second_address())
    with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{rider.name}") as said:
        platform.up()
    assert "host or sshHost: it names another host now" in str(said.value)
    platform.set("sshHost", remote.host.address)
    with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{rider.name}"):
        platform.destroy()
    assert remote.written_since(files) == []
    back = changes(platform.up())  # only the doctor has looked at the other host
    assert back == {"updated": 1, "unchanged": back["unchanged"]}
    assert lab.uids(KINDS) == before


def test_one_up_of_each_stack_fills_a_k3s_that_was_wiped(
    lab: Lab, remote: RemoteNode, platform: Stack, rider: Stack
) -> None:
    """After k3s was wiped, one `up` of the platform and one of the run make all of it anew.

    The next `up` of each changes nothing.
    """
    remote.host.shell("/usr/local/bin/k3s-uninstall.sh")
    remote.empty_cluster()
    platform.preview()
    platform.up()
    lab.wait_claim_bound()
    assert set(changes(platform.up("--expect-no-changes"))) == {"unchanged"}
    rider.preview()
    rider.up()
    training = lab.get("statefulset", "train-multipod")
    assert training["status"]["readyReplicas"] == training["spec"]["replicas"]
    assert set(changes(rider.up("--expect-no-changes"))) == {"unchanged"}


def test_platform_moves_when_no_run_is_there(
    lab: Lab, remote: RemoteNode, platform: Stack, rider: Stack
) -> None:
    """Once the run is destroyed, `up` moves the platform to another host, and the data stay."""
    rider.destroy()
    platform.set("sshHost", remote.second_address())
    platform.preview()
    platform.up()
    lab.wait_claim_bound()
    assert remote.node.calls().count("k3s-uninstall.sh") == 2  # the first call was by hand
    assert lab.run_dir(RUN).is_dir()


def test_platform_without_a_run_goes_with_its_data(
    lab: Lab, remote: RemoteNode, platform: Stack, rider: Stack
) -> None:
    """`destroy` with `dataOnDestroy: purge` removes k3s and the data."""
    platform.destroy()
    for stack in (platform, rider):
        assert json.loads(stack.export())["deployment"].get("resources", []) == []
    assert remote.node.differences() == []
    assert not (lab.cluster.data_root / "runs").exists()
    remote.empty_cluster()  # the lab's cluster stays, although k3s was uninstalled


def test_adopted_k3s_stays_and_what_was_made_in_it_goes(lab: Lab, remote: RemoteNode) -> None:
    """`destroy` leaves a k3s that was adopted, and deletes what the stack has made in it.

    While a run of another stack is there, `destroy` refuses and keeps the data.
    """
    remote.node.install_by_hand(OWNER="somebody-else", STACK="organization/disttrain/theirs")
    stack = remote.stack("e2e-adopt", {**alone(lab), "k3sExisting": "adopt"})
    stack.up()
    lab.kubectl("create", "configmap", "their-run")
    lab.kubectl("label", "configmap", "their-run", "disttrain.dev/record=run")
    lab.kubectl("annotate", "configmap", "their-run", "disttrain.dev/stack=their-stack")
    with pytest.raises(PulumiFailedError, match="pulumi destroy --stack their-stack"):
        stack.destroy()
    assert (lab.cluster.data_root / "runs").is_dir()
    lab.kubectl("delete", "configmap", "their-run")
    stack.destroy()
    assert json.loads(stack.export())["deployment"].get("resources", []) == []
    assert "disttrain" not in lab.kubectl("get", "namespace,pv", "-o", "name")
    assert not (lab.cluster.data_root / "runs").exists()
    assert remote.host.shell("systemctl is-active k3s").strip() == "active"
    remote.node.remove_by_hand()
