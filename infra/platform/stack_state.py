"""The resources of this stack as its state has them, before the program registers any."""

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
    """One resource of the last `up`, also of one that has failed.

    Args:
        type: such as `kubernetes:core/v1:Namespace`.
        name: of the resource in the stack.
        outputs: what its provider or its component has answered; secrets are in plain text.
    """

    type: str
    name: str
    outputs: Mapping[str, Any]


async def resources_in_state() -> list[StateResource]:
    """All of this stack; none before its first `up`.

    The outputs of a stack say less: Pulumi notes them only when an `up` has ended well.

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
    """What the engine answers.

    A backend of files keeps a second file beside each one (`.attrs`), and empties it for a moment
    when it writes (gocloud.dev 0.46, blob/fileblob). The engine writes the state while it reads it
    for us, and then says "failed to load checkpoint: EOF". So one refusal says nothing.
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
