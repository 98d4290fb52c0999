"""Waits until a workload that the engine replaces is gone, before the engine makes the new one.

A changed run does not need this, because the hand-over has already ended its old workload. But the
engine also replaces a workload without a change of the run: with `pulumi up --replace`, or if a
newer version of this program renders a field differently that cannot be changed in place. The task
infra/kube/runs/replaced.py waits.
"""

import json

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def replaced_is_gone_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook of a workload that waits for the end of the old workload.

    Args:
        name: the name of the hook, which must be unique in the stack.
        hand_over: the command of the hand-over. Its job names the workload and the cluster.

    Raises:
        RuntimeError: The hook raises it if the old workload does not end. The new one is not made
            then.
    """

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        job = await hand_over.stdin.future()
        await run_in_hook("replaced", json.loads(job or "{}"))

    return pulumi.ResourceHook(name, before_create)
