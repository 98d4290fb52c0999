"""The policy pack as the engine runs it: a process that is asked about each resource.

The test takes the engine's part in this conversation. The sandbox's own engine cannot run a pack,
because its Python language host is of an older release (docs/sandbox.md).
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from infra.platform.object_rules import OBJECT_RULES
from sandbox.venvs import PROJECT, ensure_venv
from tests.unit.pods import broken
from tests.unit.stacks import STACKS, Registered, deploy

NOT_KNOWN_YET = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # what the engine sends in a preview
OWNER = "disttrain.dev/owner"


@pytest.fixture(scope="module")
def pack() -> Iterator[Any]:
    """Yield the connection to the pack, which was started in the project's folder as the engine
    does it.
    """
    python = ensure_venv("policy/.venv") / "bin" / "python"
    with subprocess.Popen(
        [python, str(PROJECT / "policy"), "127.0.0.1:1"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
        process.kill()


def found(pack: Any, type_: str, inputs: dict[str, Any]) -> dict[str, str]:
    """Return the rules that a resource breaks, with their messages."""
    properties = Struct()
    properties.update(inputs)
    request = analyzer_pb2.AnalyzeRequest(
        type=type_, urn=f"urn:pulumi:dev::disttrain::{type_}::x", name="x", properties=properties
    )
    answer = pack.Analyze(request, timeout=60)
    return {diagnostic.policyName: diagnostic.message for diagnostic in answer.diagnostics}


def in_preview(resource: Registered) -> dict[str, Any]:
    """Return the inputs of a resource as they are in a preview, in which the owner is not known."""

    def without_owner(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: NOT_KNOWN_YET if key == OWNER else without_owner(entry)
                for key, entry in value.items()
            }
        return [without_owner(entry) for entry in value] if isinstance(value, list) else value

    return without_owner(resource.inputs)


def test_pack_has_every_rule_and_enforces_it(pack: Any) -> None:
    """The pack has every rule of the project, and each of them is mandatory."""
    info = pack.GetAnalyzerInfo(Empty())
    levels = {policy.name: policy.enforcementLevel for policy in info.policies}
    assert levels == dict.fromkeys((rule.id for rule in OBJECT_RULES), analyzer_pb2.MANDATORY)


@pytest.mark.parametrize("stack", STACKS)
def test_first_preview_of_every_stack_breaks_no_rule(pack: Any, stack: str, tmp_path: Path) -> None:
    """No object of any example stack breaks a rule in its first preview, in which some values are
    not known yet.
    """
    made = deploy(stack, tmp_path)
    objects = [r for r in made.resources if r.type.startswith("kubernetes:")]
    assert len(objects) > 4
    assert {r.name: found(pack, r.type, in_preview(r)) for r in objects} == {
        r.name: {} for r in objects
    }


def test_broken_rules_are_named_with_their_reason(pack: Any) -> None:
    """An object that breaks a rule is refused with the rule's name and its reason."""
    labels = {"labels": {OWNER: "me"}}
    inputs = {"metadata": labels, "spec": {"template": broken("plain password")}}
    told = found(pack, "kubernetes:batch/v1:Job", inputs)
    assert told.keys() == {"no-plain-secrets"}
    assert "takes its value from a Secret" in told["no-plain-secrets"]
    volume = {"metadata": labels, "spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    told = found(pack, "kubernetes:core/v1:PersistentVolume", volume)
    assert told.keys() == {"volume-is-kept"}
