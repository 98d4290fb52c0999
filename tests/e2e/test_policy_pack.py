"""`pulumi up --policy-pack policy` as users type it, by the engine itself, on a real cluster.

tests/policy asks the same of a preview. Like there, this needs a Python language host that runs
packs (docs/sandbox.md); elsewhere these tests are left out.
"""

from collections.abc import Iterator

import pytest

from infra.platform.object_rules import OBJECT_RULES
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import ensure_venv
from tests.e2e.asking import changes
from tests.e2e.lab import Lab, run_settings

pytestmark = [pytest.mark.in_order, pytest.mark.policy_packs]

PACK = ("--policy-pack", "policy")  # from the project's folder
RUN, STEPS = "e2e-policed", 20
KINDS = ("job", "pod", "configmap", "secret", "service", "persistentvolumeclaim")


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    ensure_venv("policy/.venv")
    made = lab.stack("e2e-policed", "sandbox", run_settings(RUN, STEPS))
    yield made
    made.destroy()


def test_up_with_the_pack_makes_all_of_a_good_stack(lab: Lab, stack: Stack) -> None:
    """The pack is asked about each resource with the values that it really gets."""
    output = stack.up(*PACK)
    assert "Policies:" in output
    assert "disttrain@" in output
    assert not [rule.id for rule in OBJECT_RULES if f"{rule.id} " in output]
    assert changes(output)["created"] > 10
    lab.wait_done(RUN)
    assert set(changes(stack.up(*PACK, "--expect-no-changes"))) == {"unchanged"}


def test_up_of_a_privileged_pod_is_ended_before_it_is_there(lab: Lab, stack: Stack) -> None:
    """By its preview, so that nothing at all is changed."""
    stack.set_all({"topology": "privileged", "extensions[0]": "tests.policy.broken_kind"})
    before = lab.uids(*KINDS)
    with pytest.raises(PulumiFailedError) as refused:
        stack.up(*PACK)
    assert "no-privileges" in str(refused.value)
    assert "training-job" in str(refused.value)
    after = lab.uids(*KINDS)
    assert not [name for name in after if "train-privileged" in name]
    assert after == before
