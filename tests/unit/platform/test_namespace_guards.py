"""Which namespaces are looked at before `destroy` deletes them; tests/kube looks at real ones."""

import json
from pathlib import Path

from infra.names import CLAIM_OF_CLASS
from tests.unit.program.parts import everything_before
from tests.unit.stacks import deploy
from tests.unit.storages.other_storages import CLASS


def test_guard_looks_at_the_namespaces_that_destroy_deletes(tmp_path: Path) -> None:
    """The guard of `destroy` looks at each namespace that will be deleted. It does not look at one
    that somebody else has made, that stays with the data, or that goes with k3s.
    """

    def looked_at(stack: str, settings: dict[str, object]) -> list[str]:
        made = deploy(stack, tmp_path, settings)
        job = json.loads(made.one("destroy-guard-look").inputs["stdin"])
        return [each["name"] for each in job.get("own_namespaces", [])]

    assert looked_at("sandbox", {}) == ["disttrain"]
    assert looked_at("sandbox", {"namespaceExisting": "use"}) == []
    assert looked_at("dev", {}) == []
    assert looked_at("dev", {"k3sExisting": "adopt"}) == ["disttrain", "gpu-operator"]
    assert looked_at("sandbox", CLASS) == []
    purged = {**CLASS, "dataOnDestroy": "purge", "purgeConfirmed": f"disttrain/{CLAIM_OF_CLASS}"}
    assert looked_at("sandbox", purged) == ["disttrain"]


def test_gpu_operator_is_taken_away_after_a_look_at_its_namespace(tmp_path: Path) -> None:
    """The guard of the GPU Operator's namespace comes after the operator's release, so at `destroy`
    it looks at the namespace before the release is removed.
    """
    made = deploy("dev", tmp_path)
    guard = made.one("gpu-operator-namespace-guard-look")
    job = json.loads(guard.inputs["stdin"])
    assert [each["name"] for each in job["own_namespaces"]] == ["gpu-operator"]
    assert "gpu-operator-release" in everything_before(made, guard)
