"""The wait for the end of a workload that the engine replaces, before it makes the new one.

A changed run needs none: the hand-over before it has ended its workload. But the engine also
replaces one by itself, as with `pulumi up --replace`, or where a newer version of this program
renders a field in another way that cannot be changed. See infra/kube/runs/replaced.py, which waits.
"""

import json

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def replaced_is_gone_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook of a workload.

    Args:
        name: of the hook; no other one of the stack has it.
        hand_over: the task that has run before; its job names the workload and the cluster.

    Raises:
        RuntimeError: in the hook, where the old one does not go. Nothing is made then.
    """

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        job = await hand_over.stdin.future()
        await run_in_hook("replaced", json.loads(job or "{}"))

    return pulumi.ResourceHook(name, before_create)
