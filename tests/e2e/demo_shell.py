"""Runs the commands in a page of the docs in a shell that is set up as `make demo` leaves it."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.cluster_commands import NAME_VARIABLE
from sandbox.stack import Stack
from sandbox.venvs import PROJECT
from tests.e2e.lab import Lab

SECONDS = 300
LEFT_OUT = "..."
IN_THE_CLUSTER = "kubectl get nodes --show-labels; kubectl describe pods -n disttrain | tail -n 150"
UNDOES = re.compile(r"^kubectl\b.*( delete |-$)")
# The lines that a command prints while its pod starts. A busy machine prints more of them.
WAITS = re.compile(r"^\d+ s: waiting for pod .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command in the page, and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


def steps_of(page: str) -> list[Step]:
    """Return the commands in a page's code blocks of kind `console`."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            found.append(Step(command, tuple(shown)))
    return found


def pattern_of(shown: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that output like `shown` matches.

    A line `...` stands for any number of lines. Inside a line, `...` stands for any text.
    """
    lines = [
        r"(?:.*\n)*?" if line.strip() == LEFT_OUT else any_text(line) + r"[ \t]*\n"
        for line in shown
    ]
    return re.compile("".join(lines))


def any_text(line: str) -> str:
    """Return a pattern of one line, in which one or more spaces match any number of spaces."""
    words = re.escape(line.rstrip()).replace(re.escape(LEFT_OUT), ".*")
    return re.sub(r"(?:\\ )+", r"[ \\t]+", words)


@contextmanager
def demo_shell(lab: Lab, folders: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment variables of a shell that is set up as `make demo` leaves it.

    The stacks' files are copies, so the checkout does not change. The stacks are destroyed at the
    end.
    """
    project = folders.mktemp("checkout")
    for path in PROJECT.iterdir():
        if not re.fullmatch(r"Pulumi\..+\.yaml|\..*state|build", path.name):
            (project / path.name).symlink_to(path)
    folder = folders.mktemp("stacks")
    stacks: list[Stack] = []
    for name in ("sandbox", "sandbox-multipod"):
        file = project / f"Pulumi.{name}.yaml"
        file.write_text((PROJECT / file.name).read_text())
        stacks.append(Stack(name, folder / "backend", file, project))
    here = {
        "kubeconfig": str(lab.cluster.kubeconfig),
        "containerdAddress": str(lab.cluster.containerd_address),
        "dataRoot": str(lab.cluster.data_root),
        "topology": "none",
    }
    platform, rider = stacks
    platform.set_all({**here, "datasetFile": str(lab.text)})
    rider.set_all({"datasetFile": str(lab.text)})
    platform.up()
    platform.set("topology", None)
    try:
        yield {
            **platform.environment,
            "PATH": f"{Path(lab.cluster.kubectl[0]).parent}:{platform.environment['PATH']}",
            "KUBECONFIG": str(lab.cluster.kubeconfig),
            NAME_VARIABLE: lab.cluster.name,
            "PWD": str(project),
        }
    finally:
        for stack in (rider, platform):
            stack.destroy()


def type_page(shell: dict[str, str], page: Path) -> None:
    """Run each command of the page; each must succeed and print what the page shows.

    If one does not, the later commands of the page that delete something are run, because a second
    try of the test would otherwise find the objects.
    """
    steps = steps_of(page.read_text())
    assert len(steps) >= 4
    for number, step in enumerate(steps):
        code, printed = typed(shell, step.command)
        if code == 0 and pattern_of(step.shown).fullmatch(WAITS.sub("", printed)):
            continue
        _, there = typed(shell, IN_THE_CLUSTER)
        for later in steps[number + 1 :]:
            if UNDOES.search(later.command):
                typed(shell, later.command)
        raise AssertionError(
            f"$ {step.command}\n{printed}\nshown: {step.shown}\nexit status {code}\n{there}"
        )


def typed(shell: dict[str, str], command: str) -> tuple[int, str]:
    """Return the exit status of a command, and what it has printed."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=shell["PWD"],
        env={**os.environ, **shell},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout
