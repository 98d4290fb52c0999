"""Reads the namespaces in which the stack's run may still be from the stack's own outputs.

If the platform moves to another namespace, the hand-over ends the run in the former one
(infra/kube/runs/moved_run.py). With this list it finds the run even if the credentials do not
allow it to search the whole cluster. The outputs keep the former namespaces, so that the next `up`
has the same list and changes nothing.
"""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
from pulumi.runtime import invoke_async

from infra.platform.stack_name import full_stack_name


async def former_namespaces(namespace: str) -> list[str]:
    """The namespaces of this stack's former `up`s; empty if its outputs cannot be read.

    Args:
        namespace: the namespace of this `up`, which is left out.
    """
    stack = {"name": full_stack_name(pulumi.get_stack())}
    try:
        found = await invoke_async("pulumi:pulumi:readStackOutputs", stack)
    except Exception as reason:  # any error is ignored: only a run that has moved needs the answer
        pulumi.log.debug(f"the outputs of the former `up` cannot be read: {reason}")
        return []
    outputs: object = cast(Mapping[str, Any], found or {}).get("outputs")
    return left_behind(cast(Mapping[str, Any], outputs or {}), namespace)


def left_behind(outputs: Mapping[str, Any], namespace: str) -> list[str]:
    """The namespaces in the outputs, each once and without `namespace`. This function is pure."""
    former = str(outputs.get("formerNamespaces") or "")
    named = [*former.split(), str(outputs.get("namespace") or "")]
    return [each for each in dict.fromkeys(named) if each and each != namespace]
