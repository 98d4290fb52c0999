"""What the program does if the engine cannot read the stack's state at first, or not at all."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

from infra.platform import stack_state

URN = "urn:pulumi:dev::disttrain::kubernetes:core/v1:Namespace::namespace"
ANSWER = {"outputs": {URN: {"type": "kubernetes:core/v1:Namespace", "outputs": {"id": "a"}}}}


class Engine:
    """A stand-in for the engine that refuses `refusals` times before it answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    async def invoke(self, token: str, arguments: Mapping[str, str]) -> Any:
        assert (token, arguments) == (stack_state.READ_RESOURCES, {"stackName": "dev"})
        self.asked += 1
        if self.asked <= self.refusals:
            raise Exception("failed to load checkpoint: EOF")
        return ANSWER


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that asks this engine for the resources, without pauses between the
    tries.
    """
    monkeypatch.setattr(stack_state, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(stack_state, "full_stack_name", str)
    monkeypatch.setattr(pulumi, "get_stack", lambda: "dev")

    def resources(engine: Engine) -> list[stack_state.StateResource]:
        monkeypatch.setattr(stack_state, "invoke_async", engine.invoke)
        return asyncio.run(stack_state.resources_in_state())

    return resources


def test_state_that_is_being_written_is_read_again(ask: Any) -> None:
    """If the engine cannot read the state, it is asked again. In a first `up` it may read the file
    while it is still empty.
    """
    (found,) = ask(Engine(refusals=2))
    assert (found.type, found.name) == ("kubernetes:core/v1:Namespace", "namespace")
    assert found.outputs == {"id": "a"}


def test_state_that_cannot_be_read_refuses(ask: Any) -> None:
    """If the state cannot be read in all tries, `up` is refused. It must not look as if the stack
    had no resources, because a former cluster would be forgotten.
    """
    engine = Engine(refusals=1000)
    with pytest.raises(pulumi.RunError, match=r"checkpoint: EOF.*Nothing was chan"):
        ask(engine)
    assert engine.asked == stack_state.TRIES
