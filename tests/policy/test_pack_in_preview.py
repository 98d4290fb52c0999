"""The policy pack as users run it: `pulumi preview --policy-pack policy`, with the engine itself.

These tests need a Python language host that runs packs: that of a release of Pulumi, which the
sandbox downloads where it can, or one that DISTTRAIN_ENGINE names (docs/sandbox.md). Elsewhere they
are left out, and tests/policy/test_pack.py asks the pack alone.
"""

from pathlib import Path

import pytest

from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT, ensure_venv

pytestmark = pytest.mark.policy_packs

PACK = ("--policy-pack", str(PROJECT / "policy"))


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """Return a stack with the settings of Pulumi.dev.yaml."""
    ensure_venv("policy/.venv")
    settings = tmp_path / "Pulumi.policed.yaml"
    settings.write_text((PROJECT / "Pulumi.dev.yaml").read_text())
    return Stack("policed", tmp_path / "backend", settings)


def test_preview_of_a_good_stack_passes_the_pack(stack: Stack) -> None:
    """The preview of an example stack passes the pack."""
    output = stack.preview(*PACK)
    assert "Policies:" in output
    assert "disttrain@" in output
    assert "to create" in output


def test_preview_with_a_privileged_pod_is_ended_by_its_rule(stack: Stack) -> None:
    """A preview with a user's own kind of workload whose pod is privileged is ended by the rule
    `no-privileges`. Without the pack the same preview passes.
    """
    stack.set("topology", "privileged")
    stack.set_all({"extensions[0]": "tests.policy.broken_kind"})
    assert "training-job" in stack.preview()
    with pytest.raises(PulumiFailedError) as refusal:
        stack.preview(*PACK)
    assert "no-privileges" in str(refusal.value)
    assert "training-job" in str(refusal.value)
