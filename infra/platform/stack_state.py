"""Reads the resources in this stack's state, before the program registers any resource."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pulumi
from pulumi.runtime import invoke_async

from infra.platform.stack_name import full_stack_name

READ_RESOURCES = "pulumi:pulumi:readStackResourceOutputs"
TRIES = 10
PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class StateResource:
    """One resource of the last `up`, even if that `up` has failed.

    Args:
        type: type of the resource, such as `kubernetes:core/v1:Namespace`.
        name: name of the resource in the stack.
        outputs: the outputs that its provider or its component has given. Secrets are in plain
            text.
    """

    type: str
    name: str
    outputs: Mapping[str, Any]


class StackState:
    """The resources of this stack, which are read when they are first asked for, and only once.

    One read is enough for all questions of a program, and its answers then fit each other: the
    engine may write the state while the program runs.
    """

    def __init__(self) -> None:
        self._resources: list[StateResource] | None = None

    async def resources(self) -> list[StateResource]:
        """Return what `resources_in_state` returns. It raises the same error."""
        if self._resources is None:
            self._resources = await resources_in_state()
        return self._resources


async def resources_in_state() -> list[StateResource]:
    """Read all resources of this stack; there are none before its first `up`.

    The outputs of the stack would not be enough, because Pulumi only writes them when an `up` has
    succeeded.

    Raises:
        pulumi.RunError: the state cannot be read.
    """
    found = await _read({"stackName": full_stack_name(pulumi.get_stack())})
    outputs: object = found.get("outputs")
    entries = cast(Mapping[str, Mapping[str, Any]], outputs or {})
    return [
        StateResource(
            type=str(entry.get("type") or ""),
            name=urn.rpartition("::")[2],
            outputs=cast(Mapping[str, Any], entry.get("outputs") or {}),
        )
        for urn, entry in entries.items()
    ]


async def _read(stack: Mapping[str, str]) -> Mapping[str, Any]:
    """Ask the engine, and try again if it refuses.

    A file backend keeps a second file (`.attrs`) beside each file, and empties it for a moment
    during a write (gocloud.dev 0.46, blob/fileblob). The engine may write the state while it reads
    it for this program. Then it answers "failed to load checkpoint: EOF". So a single refusal means
    nothing.

    Raises:
        pulumi.RunError: the engine has refused TRIES times.
    """
    tries_left = TRIES
    while True:
        try:
            return cast(Mapping[str, Any], await invoke_async(READ_RESOURCES, stack) or {})
        except Exception as reason:
            tries_left -= 1
            if not tries_left:
                raise pulumi.RunError(
                    f"the state of this stack cannot be read ({reason}), so it is not known in "
                    "which cluster its objects are. Nothing was changed. Run the command again "
                    "when the backend answers (`pulumi whoami --verbose` names it)"
                ) from None
        await asyncio.sleep(PAUSE_SECONDS)
