"""The hooks of a workload, which the engine calls just before it makes the workload's objects.

The tasks before the workload cannot know whether the engine will make it, so what has to happen
only in that case is done by hooks. Each hook runs a task of infra.kube.
"""

import json
from collections.abc import Awaitable, Callable, Sequence

import pulumi
from pulumi_command import local

from infra.kube.runs.hand_over import LEFT_ALONE
from infra.task_in_hook import run_in_hook


def hand_over_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook that repeats the hand-over, for all objects of a workload.

    It is for a workload that the engine makes again although its run is unchanged. A workload that
    is gone is made again only after `pulumi refresh` has told the engine so. One that has failed is
    made again only if it is deleted or replaced. Until then no other run should be suspended for
    it, so the task `hand-over` has left other runs alone.

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


def replaced_is_gone_before_creation(name: str, hand_over: local.Command) -> pulumi.ResourceHook:
    """The hook of a workload that waits until the workload that the engine replaces is gone.

    A changed run does not need this, because the hand-over has already ended its old workload. But
    the engine also replaces a workload without a change of the run: with `pulumi up --replace`, or
    if a newer version of this program renders a field differently that cannot be changed in place.
    The task infra/kube/runs/replaced.py waits.

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


def accepted_before_creation(
    name: str, refused_at_first: Sequence[str], hand_over: local.Command
) -> pulumi.ResourceHook:
    """The hook of a workload that waits until a controller's webhook would accept the workload.

    The webhook refuses the workload until it has seen the objects that the workload names. The task
    infra/kube/runs/accepted.py waits.

    Args:
        name: the name of the hook, which must be unique in the stack.
        refused_at_first: parts of the messages of refusals that end by themselves; see
            WorkloadKind.
        hand_over: the command of the hand-over. Its job contains how the cluster is reached.

    Raises:
        RuntimeError: The hook raises it if the refusal does not end. The workload is not made then.
    """

    async def before_create(args: pulumi.ResourceHookArgs) -> None:
        manifest = await pulumi.Output.json_dumps(args.new_inputs).future()
        job = await hand_over.stdin.future()
        await wait_until_accepted(refused_at_first, job or "{}", manifest or "{}")

    return pulumi.ResourceHook(name, before_create)


async def wait_until_accepted(refused_at_first: Sequence[str], job: str, manifest: str) -> None:
    """Run the task `accepted`.

    Args:
        refused_at_first: parts of the messages of refusals that end by themselves.
        job: the job of another task on the same cluster, as JSON.
        manifest: the object that the engine is about to make, as JSON.

    Raises:
        RuntimeError: The task has failed. The text is the reason that it has printed.
    """
    wanted = {"manifest": json.loads(manifest), "refused_at_first": [*refused_at_first]}
    await run_in_hook("accepted", {**json.loads(job), **wanted})
