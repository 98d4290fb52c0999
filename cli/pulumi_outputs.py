"""Asks Pulumi for the outputs of a stack, also for those of an `up` that has not succeeded yet."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

from infra.names import EARLY_OUTPUTS

PROJECT = Path(__file__).resolve().parents[1]
PULUMI_SECONDS = 60
_MEANINGS = {
    "no stack selected": "no stack is selected. Name one by --stack, or select one by `pulumi "
    "stack select NAME`; `pulumi stack ls` lists them",
    "must be set for login": "Pulumi is not logged in, so it does not know where the stacks are "
    "kept: pulumi login --local, or with the address where you keep them",
    "passphrase must be set": "Pulumi needs the stack's passphrase, which `pulumi stack init` has "
    "asked for. Set it in this shell: export PULUMI_CONFIG_PASSPHRASE=..., or set "
    "PULUMI_CONFIG_PASSPHRASE_FILE to a file that contains it",
    "incorrect passphrase": "the passphrase in PULUMI_CONFIG_PASSPHRASE or in the file "
    "PULUMI_CONFIG_PASSPHRASE_FILE is not that of the stack. Set the one that you have given to "
    "`pulumi stack init`",
}
"""What to tell the user, by words in an error of Pulumi."""


def selected_stack() -> str:
    """Return the name of the stack that `pulumi stack select` has chosen.

    Raises:
        ValueError: there is no pulumi, or no stack is selected.
    """
    return ask_pulumi(["stack", "--show-name"]).strip()


def outputs_of(stack: str, wanted: Sequence[str], *, about_run: bool = False) -> dict[str, Any]:
    """Ask pulumi for the stack's outputs, and use its early outputs if they are newer.

    Pulumi stores the outputs of an `up` only when it has succeeded. While the next `up` is under
    way, and after it has failed, the stored outputs may be about the run that it has replaced. The
    resource EarlyOutputs knows the new run earlier.

    Args:
        stack: the name of the stack; an empty text means the selected stack.
        wanted: the names of the outputs that are needed. If one of them is missing, the early
            outputs are used.
        about_run: use the early outputs also if the hand-over to their run has succeeded.
    """
    chosen = ["--stack", stack] if stack else []
    given = json.loads(ask_pulumi(["stack", "output", "--json", "--show-secrets", *chosen]))
    is_whole = all(given.get(name) for name in wanted)
    if is_whole and not about_run:
        return given
    state = json.loads(ask_pulumi(["stack", "export", "--show-secrets", *chosen]))
    early = early_outputs(state)
    return given if is_whole and not _has_handed_over(state, early) else {**given, **early}


def _has_handed_over(state: Mapping[str, Any], early: Mapping[str, Any]) -> bool:
    """Whether the last hand-over that succeeded was to the run of the early outputs.

    This function is pure.
    """
    for resource in _resources(state):
        inputs = cast(Mapping[str, Any], resource.get("inputs") or {})
        if str(inputs.get("create") or "").endswith(" hand-over create"):
            job = json.loads(str(_without_secret_mark(inputs["stdin"])))
            return job.get("run") == PurePosixPath(str(early.get("runPath"))).name
    return False


def early_outputs(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an `up` that is under way, or has failed, knows about its run.

    The result is empty if it knows nothing yet. This function is pure.

    Args:
        state: the state of the stack, as `pulumi stack export --show-secrets` prints it.
    """
    found: dict[str, Any] = {}
    for resource in _resources(state):
        if resource.get("type") == EARLY_OUTPUTS:
            outputs = cast(Mapping[str, Any], resource.get("outputs") or {})
            found |= cast(Mapping[str, Any], outputs.get("known") or {})
    return {name: _without_secret_mark(value) for name, value in found.items()}


def _resources(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    deployment = cast(Mapping[str, Any], state.get("deployment") or {})
    return cast(Sequence[Mapping[str, Any]], deployment.get("resources") or ())


def _without_secret_mark(value: object) -> object:
    """Return the value of a secret, which Pulumi exports as an object with the value's JSON text.

    Any other value is returned as it is.
    """
    if isinstance(value, dict) and "plaintext" in value:
        return json.loads(cast(Mapping[str, str], value)["plaintext"])
    return cast(object, value)


def ask_pulumi(words: list[str]) -> str:
    """Run pulumi in the project's folder, and return what it prints.

    Raises ValueError if there is no pulumi, if it fails, or if it takes longer than PULUMI_SECONDS.
    """
    command = ["pulumi", *words]
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PULUMI_SECONDS,
        )
    except FileNotFoundError:
        raise ValueError(
            "there is no program `pulumi` on PATH, and this command asks it how the stack's "
            "cluster is reached. Install Pulumi (https://www.pulumi.com/docs/install), or add the "
            "folder of the program to PATH, for the demo of this project by: "
            'eval "$(python3 -m sandbox env)". Without Pulumi you can use '
            "./disttrain status --kubeconfig FILE"
        ) from None
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{' '.join(command)} gave no answer in {PULUMI_SECONDS} s. The backend in which the "
            "stack is kept may be out of reach: `pulumi whoami --verbose` names it"
        ) from None
    if done.returncode:
        raise ValueError(_why_pulumi_failed(command, done.stderr.strip()))
    return done.stdout


def _why_pulumi_failed(command: list[str], said: str) -> str:
    """Return the error text for the user. This function is pure."""
    for words, meaning in _MEANINGS.items():
        if words in said:
            return meaning
    if "no stack named" in said and "--stack" in command:
        stack = command[command.index("--stack") + 1]
        return (
            f"--stack: {stack!r} cannot be used: there is no such stack. `pulumi stack ls` lists "
            "those that there are"
        )
    return f"{' '.join(command)} failed: {said[-300:]}"
