"""A task of infra.kube that the engine runs just before it makes a resource, by a hook."""

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
    """Run it in a process of its own, which ends in order at Ctrl-C, as those of the engine do.

    Args:
        task: its name; what it prints is shown while it runs.
        job: what it reads from its standard input.

    Raises:
        RuntimeError: with the reason that the task gives, which has failed.
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
