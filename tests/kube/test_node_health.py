"""The pods that watch machines, on a real node, in a namespace where the rules for pods hold.

In the one test that needs faults, a file stands in for the kernel's log, and a script for
`nvidia-smi`.
"""

from collections.abc import Iterator

import pytest

from cli.status.snapshot import take_snapshot
from infra.names import NODE_HEALTH
from infra.platform.node_health import HEALTH
from infra.platform.pod_policy import PodPolicyArgs, binding, policy
from tests.kube.lab import Lab, wait_for
from tests.kube.policies import BINDINGS, POLICIES, refusal
from tests.kube.watched import Watched
from tests.unit.in_cluster.kernel_lines import CLEAN, LOST
from tests.unit.pods import broken

BROKEN_SMI = '#!/usr/local/bin/python\nraise SystemExit("NVIDIA-SMI has failed")\n'


@pytest.fixture
def watched(lab: Lab) -> Iterator[Watched]:
    """Yield a namespace with the rules for pods, in which pods can watch the node.

    The rules and the changes of the node are removed afterwards.
    """
    made = Watched(lab)
    args = PodPolicyArgs(made.namespace, "dev", "me", "deny")
    lab.api.create(POLICIES, policy(args))
    lab.api.create(BINDINGS, binding(args))
    try:
        wait_for("the rules to hold", lambda: refusal(lab, made.namespace, broken("root")))
        yield made
    finally:
        made.end()
        lab.api.delete(f"{BINDINGS}/{made.namespace}-pods", {})
        lab.api.delete(f"{POLICIES}/{made.namespace}-pods", {})


def test_machine_is_watched_with_the_kernels_own_log(watched: Watched) -> None:
    """A pod that mounts nothing of the node can read the kernel's log, and tells what it says.

    With `cordons` off, its account may write the status of pods, and may not change nodes.
    """
    watched.start(cordons=False)
    told = wait_for("the first words of the watch", watched.told)
    assert "cannot be read" not in told.get("message", "")
    is_well = told["status"] == "True"  # It is not known whether this machine's log has faults.
    wait_for("the pod to say so", lambda: watched.is_ready(*watched.pods(NODE_HEALTH)) == is_well)
    account = f"--as=system:serviceaccount:{watched.namespace}:{HEALTH.name}"
    for words, answer in (("patch pods --subresource=status", "yes"), ("patch nodes", "no")):
        verb, *rest = words.split()
        asked = f"auth can-i {verb} {' '.join(rest)} {account} -n {watched.namespace} -q=false"
        try:
            said = watched.lab.kubectl(*asked.split())
        except Exception as refused:  # `can-i` exits with 1 if the answer is no.
            said = str(getattr(refused, "stdout", ""))
        assert said.strip().startswith(answer), words


def test_unusable_machine_is_cordoned_and_its_training_saves(watched: Watched) -> None:
    """A machine with a fault is cordoned, and the training on it saves and ends.

    The fault here is a driver that fails. After somebody has uncordoned the machine, it stays
    uncordoned until there is another fault: a GPU that falls off the bus.
    """
    lab = watched.lab
    watched.train()
    watched.start(cordons=True, stand_ins={"nvidia-smi": BROKEN_SMI})
    wait_for("the node to be cordoned", lambda: watched.see_node()[0])
    assert "NVIDIA-SMI has failed" in watched.see_node()[1].because
    assert wait_for("the training to end", watched.exit_code) == 83

    (pod,) = watched.pods(NODE_HEALTH)
    found = {f.text: f.needs_attention for f in take_snapshot(lab.api, "x").platform.findings}
    assert any("kubectl uncordon" in text for text in found)
    assert set(found.values()) == {True}

    wait_for("the watch to be unready", lambda: not watched.is_ready(*watched.pods(NODE_HEALTH)))

    watched.log(*CLEAN)
    lab.kubectl("uncordon", watched.node)
    wait_for("the word to be taken", lambda: watched.see_node()[1].accepted)
    wait_for("the log to be read", lambda: "kernel's log" not in watched.told()["message"])
    watched.log(LOST)
    wait_for("the node to be cordoned again", lambda: watched.see_node()[0])
    assert watched.see_node()[1].because.startswith("GPU 0000:3b:00 reported Xid 79")
    assert watched.pods(NODE_HEALTH)[0]["metadata"]["uid"] == pod["metadata"]["uid"]
