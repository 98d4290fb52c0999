"""`pulumi up --policy-pack policy` as users type it, by the engine itself, on a real cluster.

tests/policy has the same tests for a preview. Like those, these tests need a Python language host
that runs packs (docs/sandbox.md); elsewhere they are left out.
"""

from collections.abc import Iterator

import pytest

from infra.platform.object_rules import OBJECT_RULES
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import ensure_venv
from tests.e2e.asking import changes
from tests.e2e.lab import Lab, run_settings

pytestmark = [pytest.mark.in_order, pytest.mark.policy_packs]

PACK = ("--policy-pack", "policy")  # relative to the project's folder
RUN, STEPS = "e2e-policed", 20
KINDS = ("job", "pod", "configmap", "secret", "service", "persistentvolumeclaim")


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    ensure_venv("policy/.venv")
    made = lab.stack("e2e-policed", "sandbox", run_settings(RUN, STEPS))
    yield made
    made.destroy()


def test_up_with_the_pack_makes_all_of_a_good_stack(lab: Lab, stack: Stack) -> None:
    """A stack that keeps all rules comes up with the policy pack, and the pack reports nothing.

    The engine asks the pack about each resource with the values that the resource really gets.
    """
    output = stack.up(*PACK)
    assert "Policies:" in output
    assert "disttrain@" in output
    assert not [rule.id for rule in OBJECT_RULES if f"{rule.id} " in output]
    assert changes(output)["created"] > 10
    lab.wait_done(RUN)
    assert set(changes(stack.up(*PACK, "--expect-no-changes"))) == {"unchanged"}


def test_up_of_a_privileged_pod_is_ended_before_it_is_there(lab: Lab, stack: Stack) -> None:
    """The policy pack ends `up` of a privileged pod during its preview, so nothing is changed."""
    stack.set_all({"topology": "privileged", "extensions[0]": "tests.policy.broken_kind"})
    before = lab.uids(*KINDS)
    with pytest.raises(PulumiFailedError) as refused:
        stack.up(*PACK)
    assert "no-privileges" in str(refused.value)
    assert "training-job" in str(refused.value)
    after = lab.uids(*KINDS)
    assert not [name for name in after if "train-privileged" in name]
    assert after == before
