"""The Kubernetes provider: what the engine keeps of it in the state."""

from pathlib import Path

import pytest

from tests.unit.stacks import deploy

VARIABLES = (
    "PULUMI_K8S_DELETE_UNREACHABLE",
    "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE",
    "PULUMI_K8S_SUPPRESS_DEPRECATION_WARNINGS",
    "PULUMI_K8S_SUPPRESS_HELM_HOOK_WARNINGS",
)


@pytest.mark.parametrize("stack", ["dev", "sandbox", "multipod"])
def test_variables_of_a_shell_stay_out_of_the_state(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider's variables count for the command for which they are set. Kept in the state,
    `PULUMI_K8S_DELETE_UNREACHABLE=true` of one `up` would let each later `pulumi refresh` forget
    all objects of a cluster that does not answer at that time.
    """
    plain = deploy(stack, tmp_path).one("cluster-provider").inputs
    for name in VARIABLES:
        monkeypatch.setenv(name, "true")
    assert deploy(stack, tmp_path).one("cluster-provider").inputs == plain


@pytest.mark.parametrize("stack", ["dev", "multipod"])
def test_objects_are_always_applied_by_the_server(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable cannot turn server-side apply off. Without it, `up` could not take over a claim
    that `destroy` has left.
    """
    monkeypatch.setenv("PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "false")
    inputs = deploy(stack, tmp_path).one("cluster-provider").inputs
    assert inputs["enableServerSideApply"] == "true"
