"""The wait for a controller that checks a workload before it has seen what the workload names.

Nothing is known of that before the engine makes the workload, so it is a hook of the workload. See
infra/kube/runs/accepted.py, which waits.
"""

import json
from collections.abc import Sequence

import pulumi
from pulumi_command import local

from infra.task_in_hook import run_in_hook


def accepted_before_creation(
    name: str, refused_at_first: Sequence[str], hand_over: local.Command
) -> pulumi.ResourceHook:
    """The hook of a workload.

    Args:
        name: of the hook; no other one of the stack has it.
        refused_at_first: words in refusals that pass by themselves; see WorkloadKind.
        hand_over: the task that has run before; its job says how the cluster is reached.

    Raises:
        RuntimeError: in the hook, where the refusal does not pass. Nothing is made then.
    """

    async def before_create(args: pulumi.ResourceHookArgs) -> None:
        manifest = await pulumi.Output.json_dumps(args.new_inputs).future()
        job = await hand_over.stdin.future()
        await wait_until_accepted(refused_at_first, job or "{}", manifest or "{}")

    return pulumi.ResourceHook(name, before_create)


async def wait_until_accepted(refused_at_first: Sequence[str], job: str, manifest: str) -> None:
    """Run the task.

    Args:
        refused_at_first: as above.
        job: of another task on the same cluster, JSON.
        manifest: the object that the engine is about to make, JSON.

    Raises:
        RuntimeError: with the reason that the task gives, which has failed.
    """
    wanted = {"manifest": json.loads(manifest), "refused_at_first": [*refused_at_first]}
    await run_in_hook("accepted", {**json.loads(job), **wanted})
