"""Reads the outputs of a stack: where its run, its volume and its cluster are."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from infra.kube.api_server.access import Access
from infra.names import EARLY_OUTPUTS

PROJECT = Path(__file__).resolve().parents[1]
PULUMI_SECONDS = 60
NOT_UP, NO_RUN = "is not up", "has no run"
WHAT_TO_DO = {
    NOT_UP: "Run `pulumi up` first",
    NO_RUN: "Set `topology` to that of a run and run `pulumi up`, or name another stack by --stack",
}
CLUSTER_NEEDED = ("kubeconfig", "namespace")
VOLUME_NEEDED = (*CLUSTER_NEEDED, "owner", "image", "claim")
RUN_NEEDED = (*CLUSTER_NEEDED, "owner", "image", "runPath", "workload", "claim")


@dataclass(frozen=True)
class RunPlace:
    """The outputs that the commands about a run need."""

    access: Access
    namespace: str
    owner: str
    image: str
    run_path: str
    workload: str
    claim: str
    bpe_file: str = ""
    placement: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The fields of a pod's spec that decide where it may run, as the training pods have them."""
    world_size: int = 1
    """The number of ranks of the run."""
    program: str = ""
    """The command of the user's own program; empty if disttrain's trainer runs."""


@dataclass(frozen=True)
class ClusterPlace:
    """How a stack's cluster is reached, the namespace of its platform, and where its pods run."""

    access: Access
    namespace: str
    placement: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As in RunPlace; empty if the stack has no run."""


@dataclass(frozen=True)
class VolumePlace:
    """What the commands about the volume need, whether or not the stack has a run.

    Args:
        runs_path: the folder of all runs, as pods see it.
        run_name: the name of the stack's own run; empty if the stack has none.
        placement: the fields of a pod's spec that decide where it may run.
        runtime_class: the RuntimeClass of pods with GPUs; empty for the cluster's default.
        bpe_file: the file with GPT-2's merge table, as pods see it. If it is empty, the table is
            downloaded when it is needed.
    """

    access: Access
    namespace: str
    owner: str
    image: str
    claim: str
    runs_path: str
    run_name: str = ""
    placement: Mapping[str, Any] = field(default_factory=dict[str, Any])
    runtime_class: str = ""
    bpe_file: str = ""


def volume_place(stack: str) -> VolumePlace:
    """Return where the volume of a stack's platform is; an empty name means the selected stack.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack is not up.
    """
    return parse_volume(_outputs(stack, VOLUME_NEEDED, about_run=True), stack)


def parse_volume(given: dict[str, Any], stack: str) -> VolumePlace:
    """Read the place of the volume from a stack's outputs. This function is pure.

    Raises ValueError if an output is missing, so that the stack is not up.
    """
    _require(given, VOLUME_NEEDED, stack, NOT_UP)
    run_path = str(given.get("runPath") or "")
    runs = str(PurePosixPath(run_path).parent) if run_path else f"{given.get('dataPath')}/runs"
    _, namespace, owner, image, claim = (str(given[name]) for name in VOLUME_NEEDED)
    name = PurePosixPath(run_path).name
    bpe_file = str(given.get("bpeFile") or "")
    return VolumePlace(
        access=_access(given),
        namespace=namespace,
        owner=owner,
        image=image,
        claim=claim,
        runs_path=runs,
        run_name=name,
        placement=_placement(given),
        runtime_class=str(given.get("runtimeClass") or ""),
        bpe_file=bpe_file,
    )


def run_place(stack: str) -> RunPlace:
    """Return where the run of a stack is; an empty name means the selected stack.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack has no run.
    """
    return parse_run(_outputs(stack, RUN_NEEDED, about_run=True), stack)


def cluster_place(stack: str) -> ClusterPlace:
    """Return where the cluster of a stack is, whether or not the stack has a run.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack is not up.
    """
    given = _outputs(stack, CLUSTER_NEEDED)
    _require(given, CLUSTER_NEEDED, stack, NOT_UP)
    return ClusterPlace(_access(given), str(given["namespace"]), _placement(given))


def refuse_program(program: str, command: str, what_it_does: str) -> None:
    """Refuse a command that works only with disttrain's own trainer.

    Args:
        program: the command of the user's own program; empty if the run has none.
        command: the name of the command that cannot be used.
        what_it_does: what the command needs or does, in words that can follow its name.

    Raises:
        ValueError: the run is of the user's own program.
    """
    if program:
        raise ValueError(
            f"{command}: it cannot be used for this run, whose program is `{program}`: {command} "
            f"{what_it_does}. ./disttrain status, logs, shell, stop and resume know any program"
        )


def run_length(stack: str) -> int:
    """Return how many steps the run of a stack has; an empty name means the selected stack.

    Raises:
        ValueError: there is no pulumi, no such stack, the stack has no run, or the run is of the
            user's own program.
    """
    given = _outputs(stack, ("maxSteps",))
    refuse_program(
        str(given.get("program") or ""), "extend", "sets how long disttrain's own trainer trains"
    )
    _require(given, ("maxSteps",), stack, NO_RUN)
    return int(given["maxSteps"])


def selected_stack() -> str:
    """Return the name of the stack that `pulumi stack select` has chosen.

    Raises:
        ValueError: there is no pulumi, or no stack is selected.
    """
    return ask_pulumi(["stack", "--show-name"]).strip()


def _outputs(stack: str, wanted: Sequence[str], *, about_run: bool = False) -> dict[str, Any]:
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


def _resources(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    deployment = cast(Mapping[str, Any], state.get("deployment") or {})
    return cast(Sequence[Mapping[str, Any]], deployment.get("resources") or ())


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
    if "no stack selected" in said:
        return (
            "no stack is selected. Name one by --stack, or select one by `pulumi stack select "
            "NAME`; `pulumi stack ls` lists them"
        )
    if "no stack named" in said and "--stack" in command:
        stack = command[command.index("--stack") + 1]
        return (
            f"--stack: {stack!r} cannot be used: there is no such stack. `pulumi stack ls` lists "
            "those that there are"
        )
    return f"{' '.join(command)} failed: {said[-300:]}"


def parse_run(given: dict[str, Any], stack: str) -> RunPlace:
    """Read the place of the run from a stack's outputs. This function is pure.

    Raises ValueError if an output is missing, so that the stack has no run.
    """
    _require(given, RUN_NEEDED, stack, NO_RUN)
    _, namespace, owner, image, run_path, workload, claim = (
        str(given[name]) for name in RUN_NEEDED
    )
    return RunPlace(
        access=_access(given),
        namespace=namespace,
        owner=owner,
        image=image,
        run_path=run_path,
        workload=workload,
        claim=claim,
        bpe_file=str(given.get("bpeFile") or ""),
        placement=_placement(given),
        world_size=int(given.get("worldSize") or 1),
        program=str(given.get("program") or ""),
    )


def _placement(given: dict[str, Any]) -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load(str(given.get("podPlacement") or "{}")))


def _require(given: dict[str, Any], wanted: tuple[str, ...], stack: str, problem: str) -> None:
    """Raise ValueError with the problem if an output is missing.

    Args:
        given: the stack's outputs.
        wanted: the names of the outputs that are needed.
        stack: the name of the stack; an empty text means the selected stack.
        problem: NOT_UP or NO_RUN. Without a kubeconfig it is NOT_UP in any case.
    """
    missing = [name for name in wanted if not given.get(name)]
    if missing:
        which = f"stack {stack}" if stack else "the selected stack"
        told = problem if given.get("kubeconfig") else NOT_UP
        raise ValueError(
            f"{which} {told}: its outputs lack {', '.join(missing)}. {WHAT_TO_DO[told]}"
        )


def _access(given: dict[str, Any]) -> Access:
    kubeconfig = str(given["kubeconfig"])
    is_text = "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")
    context = str(given.get("kubeContext") or "")
    return Access(
        kubeconfig if is_text else "",
        # The path may be relative to the project's folder.
        "" if is_text else str(PROJECT / Path(kubeconfig).expanduser()),
        context,
    )
