"""Runs a task of infra.kube in a hook, which the engine calls just before it makes a resource."""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.kube.say import ERROR
from infra.settings.project import PROJECT_ROOT

PROGRAM = ("-m", "infra.kube")


async def run_in_hook(task: str, job: Mapping[str, Any]) -> None:
    """Run a task in a process of its own, and show what it prints while it runs.

    At Ctrl-C the process ends in an orderly way, as the tasks do that the engine starts.

    Args:
        task: the name of the task.
        job: the job that the task reads from its standard input.

    Raises:
        RuntimeError: The task has failed. The text is the reason that the task has printed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *PROGRAM,
        task,
        "create",
        cwd=PROJECT_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(job).encode())
    process.stdin.close()
    error = list[str]()
    async for said_now in process.stdout:
        line = said_now.decode(errors="replace").rstrip()
        if error or line.startswith(ERROR):
            error.append(line.removeprefix(ERROR))
        else:
            pulumi.log.info(line)
    if await process.wait():
        raise RuntimeError("\n".join(error) or f"the task {task} was ended from outside")
