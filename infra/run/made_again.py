"""The hand-over of a workload that the engine makes although nothing of its run has changed.

The task `hand-over` runs first, and cannot know whether the engine will make the workload: one that
has gone is made only after `pulumi refresh` has told the engine so, and one that has failed only
where it is deleted or replaced. Until then no other run should be suspended for it. So the task
leaves the others alone where the workload of an unchanged run is not there or has failed, and the
engine calls this hook when it does make the workload.
"""

import json
from collections.abc import Awaitable, Callable

import pulumi
from pulumi_command import local

from infra.kube.runs.hand_over import LEFT_ALONE
from infra.task_in_hook import run_in_hook


def hand_over_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook of all objects of a workload: where it is refused its place, none is made.

    Args:
        name: of the hook; no other one of the stack has it.
        hand_over: the task that has run before; it is repeated where it has left others alone.

    Raises:
        RuntimeError: in the hook, where the run may not take its place. Nothing is made then.
    """
    return pulumi.ResourceHook(name, once(hand_over))


def once(hand_over: local.Command) -> Callable[[pulumi.ResourceHookArgs], Awaitable[None]]:
    """What the hook does before the first object that is made, and no more before the others."""
    is_done = False

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        nonlocal is_done
        if not is_done:
            said, job = await hand_over.stdout.future(), await hand_over.stdin.future()
            await hand_over_if_left_alone(said or "", job or "")
            is_done = True

    return before_create


async def hand_over_if_left_alone(said: str, job: str) -> None:
    """Run the task once more where it has left others alone.

    Args:
        said: what the task has printed.
        job: its standard input, JSON.

    Raises:
        RuntimeError: with the reason that the task gives, which has failed.
    """
    if LEFT_ALONE not in said:
        return
    await run_in_hook("hand-over", {**json.loads(job), "made_again": True})
