"""The hooks of the data set's Job, which the engine calls just before it makes the Job."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.kube_command import Connection
from infra.task_in_hook import run_in_hook

_SHOWING = set[asyncio.Task[None]]()  # asyncio itself does not keep tasks that nobody waits for


def name_is_free_before_creation(
    name: str, connection: Connection, claim: str, dataset: Mapping[str, Any]
) -> pulumi.ResourceHook:
    """The hook that runs the task infra/kube/runs/dataset_name.py.

    Args:
        name: the name of the hook, which must be unique in the stack.
        connection: how the task reaches the cluster.
        claim: the name of the claim on whose volume the data set will be.
        dataset: the section `dataset` of the run's configuration.

    Raises:
        RuntimeError: The hook raises it if another stack uses the name for other data by now. The
            Job is not made then.
    """
    wanted = {**connection.job, "claim": claim, "dataset": dict(dataset)}

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        text = await pulumi.Output.json_dumps(wanted).future()
        await run_in_hook("dataset-name", json.loads(text or "{}"))

    return pulumi.ResourceHook(name, before_create)


def progress_while_made(
    name: str, job: str, connection: Connection, timeout_seconds: int
) -> pulumi.ResourceHook:
    """The hook that starts the task infra/kube/runs/dataset_progress.py, and does not wait for it.

    The engine calls it only if it makes the Job, and so only if there is something to wait for.

    Args:
        name: the name of the hook, which must be unique in the stack.
        job: the name of the Job.
        connection: how the task reaches the cluster.
        timeout_seconds: the longest time until the data set is ready.
    """
    wanted = {**connection.job, "job": job, "timeout_seconds": timeout_seconds}

    async def before_create(_: pulumi.ResourceHookArgs) -> None:
        text = await pulumi.Output.json_dumps(wanted).future()
        start_to_show(text or "{}")

    return pulumi.ResourceHook(name, before_create)


def start_to_show(job: str) -> asyncio.Task[None]:
    """Start the task in the background. If it fails, a warning says so, and nothing else happens.

    Args:
        job: the job of the task, as JSON.
    """
    showing = asyncio.ensure_future(_show(job))
    _SHOWING.add(showing)
    showing.add_done_callback(_SHOWING.discard)
    return showing


async def _show(job: str) -> None:
    try:
        await run_in_hook("dataset-progress", json.loads(job))
    except RuntimeError as reason:
        pulumi.log.warn(f"how far the data set's Job is cannot be shown: {reason}")
