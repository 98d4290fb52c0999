"""Repeats the hand-over if the engine makes the workload of an unchanged run again.

The task `hand-over` runs before the workload, and cannot know whether the engine will make it. A
workload that is gone is made again only after `pulumi refresh` has told the engine so. One that has
failed is made again only if it is deleted or replaced. Until then no other run should be suspended
for it. So the task leaves other runs alone if the workload of an unchanged run is not there or has
failed. If the engine does make the workload, it calls the hook of this module, which repeats the
task.
"""

import json
from collections.abc import Awaitable, Callable

import pulumi
from pulumi_command import local

from infra.kube.runs.hand_over import LEFT_ALONE
from infra.task_in_hook import run_in_hook


def hand_over_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook that repeats the hand-over, for all objects of a workload.

    Args:
        name: the name of the hook, which must be unique in the stack.
        hand_over: the command of the task that has run before. The task is repeated if it has left
            other runs alone.

    Raises:
        RuntimeError: The hook raises it if the repeated hand-over fails. No object is made then.
    """
    return pulumi.ResourceHook(name, once(hand_over))


def once(hand_over: local.Command) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    """The hook's function, which repeats the task only before the first object that is made."""
    is_done = False

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        nonlocal is_done
        if not is_done:
            said, job = await hand_over.stdout.future(), await hand_over.stdin.future()
            await hand_over_if_left_alone(said or "", job or "")
            is_done = True

    return before_create


async def hand_over_if_left_alone(said: str, job: str) -> None:
    """Run the task once more if it has left other runs alone.

    Args:
        said: what the task has printed.
        job: the job of the task, as JSON.

    Raises:
        RuntimeError: The repeated task has failed. The text is the reason that it has printed.
    """
    if LEFT_ALONE not in said:
        return
    await run_in_hook("hand-over", {**json.loads(job), "made_again": True})
