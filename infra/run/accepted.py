"""Waits until a controller's webhook has seen the objects that a workload names.

Otherwise the webhook may refuse the workload. This can only be checked just before the engine makes
the workload, so the wait is a hook of the workload. The task infra/kube/runs/accepted.py waits.
"""

import json
from collections.abc import Sequence

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def accepted_before_creation(
    name: str, refused_at_first: Sequence[str], hand_over: local.Command
) -> pulumi.ResourceHook:
    """The hook of a workload that waits until the workload would be accepted.

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
