"""The volume of a claim that the engine makes again is freed first.

A volume waits for the claim that it was bound to, by that claim's uid. If somebody has deleted the
claim, the engine makes it again after `pulumi refresh`. The task `free-volume` has run long before
then, and nothing of its job has changed, so a hook of the claim repeats it.
"""

import json

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def freed_before_claim(name: str, look: local.Command) -> pulumi.ResourceHookBinding:
    """The hook of the claim. It also runs before an update, by which the engine tries once more to
    get the claim bound that an earlier `up` has made.

    Args:
        name: of the hook; no other one of the stack has it.
        look: the task `free-volume`, which is repeated.

    Raises:
        RuntimeError: in the hook, where the task fails. The claim is not made then.
    """

    async def before_claim(_: pulumi.ResourceHookArgs) -> None:
        await free_volume(await look.stdin.future() or "")

    hook = pulumi.ResourceHook(name, before_claim)
    return pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])


async def free_volume(job: str) -> None:
    """Run the task. Raises RuntimeError: it has failed, for the reason that it gives.

    `job`: its standard input, JSON.
    """
    await run_in_hook("free-volume", json.loads(job))
