"""Frees the volume of a claim before the engine makes or updates the claim.

A volume stays reserved for the claim that it was bound to, by that claim's uid. If somebody has
deleted the claim, the engine makes it again after `pulumi refresh`. Then the command of the task
`free-volume` has run in an earlier `up`, and does not run again, because its job has not changed.
So a hook of the claim runs the task once more.
"""

import json

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def freed_before_claim(name: str, freeing: local.Command) -> pulumi.ResourceHookBinding:
    """Make the hook of the claim.

    The hook also runs before an update of the claim. With an update the engine tries once more to
    get a claim bound that an earlier `up` has made.

    Args:
        name: name of the hook, which no other hook of the stack has.
        freeing: the command of the task `free-volume`, whose standard input the hook uses again.

    Raises:
        RuntimeError: raised by the hook if the task fails. The claim is not made then.
    """

    async def before_claim(_: pulumi.ResourceHookArgs) -> None:
        await free_volume(await freeing.stdin.future() or "")

    hook = pulumi.ResourceHook(name, before_claim)
    return pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])


async def free_volume(job: str) -> None:
    """Run the task `free-volume`.

    Args:
        job: the standard input of the task, as JSON.

    Raises:
        RuntimeError: the task has failed. The text is the reason that the task gives.
    """
    await run_in_hook("free-volume", json.loads(job))
