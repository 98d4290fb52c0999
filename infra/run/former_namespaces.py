"""The namespaces in which the stack's run may still be, from the stack's own outputs.

The hand-over ends the run there (infra/kube/runs/moved_run.py), also where these credentials may
not look for it in the whole cluster. The outputs keep them, so that the next `up` changes nothing.
"""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
from pulumi.runtime import invoke_async

from infra.platform.stack_name import full_stack_name


async def former_namespaces(namespace: str) -> list[str]:
    """Those of this stack's former `up`s; empty where its outputs cannot be read.

    Args:
        namespace: of this `up`.
    """
    stack = {"name": full_stack_name(pulumi.get_stack())}
    try:
        found = await invoke_async("pulumi:pulumi:readStackOutputs", stack)
    except Exception as reason:  # whatever it is: only a run that has moved needs the answer
        pulumi.log.debug(f"the outputs of the former `up` cannot be read: {reason}")
        return []
    outputs: object = cast(Mapping[str, Any], found or {}).get("outputs")
    return left_behind(cast(Mapping[str, Any], outputs or {}), namespace)


def left_behind(outputs: Mapping[str, Any], namespace: str) -> list[str]:
    """What the outputs name, each once and without `namespace`. Pure."""
    former = str(outputs.get("formerNamespaces") or "")
    named = [*former.split(), str(outputs.get("namespace") or "")]
    return [each for each in dict.fromkeys(named) if each and each != namespace]
