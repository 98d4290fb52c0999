"""How often the program reads the stack's state, which may be far away and large."""

from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.mocks import MockCallArgs

from infra.platform.stack_state import READ_RESOURCES
from tests.unit import stacks
from tests.unit.stacks import deploy


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry each time the program reads the state."""
    found, call = list[str](), stacks.Echo.call

    def counted(self: stacks.Echo, args: MockCallArgs) -> Any:
        found.extend([args.token] if args.token == READ_RESOURCES else [])
        return call(self, args)

    monkeypatch.setattr(stacks.Echo, "call", counted)
    return found


def test_state_is_read_once_for_a_cluster_of_others(tmp_path: Path, reads: list[str]) -> None:
    """The former cluster and the owner are both in the state. The second read could also differ
    from the first one, since the engine writes the state during an `up`.
    """
    first = deploy("sandbox", tmp_path)
    assert len(reads) == 1
    deploy("sandbox", tmp_path, before=first)
    assert len(reads) == 2


def test_state_is_read_once_for_an_own_k3s(tmp_path: Path, reads: list[str]) -> None:
    """A stack that installs its k3s finds in its state by which name the engine knows the k3s, as
    the stack may have been renamed.
    """
    deploy("dev", tmp_path)
    assert len(reads) == 1
