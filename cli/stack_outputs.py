"""Reads the outputs of a stack: where its run, its volume and its cluster are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from cli.pulumi_outputs import PROJECT, outputs_of
from infra.kube.api_server.access import Access
from infra.kube.runs.gone_pod import Asker

NOT_UP, NO_RUN, OLD = "is not up", "has no run", "was brought up by an older version of disttrain"
SELECTED = "the selected stack"
WHAT_TO_DO = {
    NOT_UP: "Run `pulumi up` first. If one is under way, it has not made that yet: try again later",
    NO_RUN: "Name a stack that has one by --stack (./disttrain status lists the runs with their "
    "stacks), or set `topology` to that of a run and run `pulumi up`",
    OLD: "Run `pulumi up` of the stack with this checkout, which writes them",
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
    """How a stack's cluster is reached, and the namespace of its platform."""

    access: Access
    namespace: str
    asker: Asker | None = None
    """What the stack gives to a pod that reads on the volume how a run ended; None: no stack was
    named, or its outputs do not say it yet."""


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
        stack: the name of the stack as the user has given it; otherwise SELECTED.
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
    stack: str = SELECTED


def asker_of(place: RunPlace | VolumePlace) -> Asker:
    """What the stack gives to a pod that reads on the volume how a run ended."""
    return Asker(place.image, place.claim, dict(place.placement))


def volume_place(stack: str) -> VolumePlace:
    """Return where the volume of a stack's platform is; an empty name means the selected stack.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack is not up.
    """
    return parse_volume(outputs_of(stack, VOLUME_NEEDED, about_run=True), stack)


def parse_volume(given: dict[str, Any], stack: str) -> VolumePlace:
    """Read the place of the volume from a stack's outputs. This function is pure.

    Raises ValueError if an output is missing, so that the stack is not up.
    """
    _require(given, VOLUME_NEEDED, stack, NOT_UP)
    run_path = str(given.get("runPath") or "")
    runs = str(PurePosixPath(run_path).parent) if run_path else f"{given.get('dataPath')}/runs"
    return VolumePlace(
        access=_access(given),
        namespace=str(given["namespace"]),
        owner=str(given["owner"]),
        image=str(given["image"]),
        claim=str(given["claim"]),
        runs_path=runs,
        run_name=PurePosixPath(run_path).name,
        placement=_placement(given),
        runtime_class=str(given.get("runtimeClass") or ""),
        bpe_file=str(given.get("bpeFile") or ""),
        stack=stack or SELECTED,
    )


def run_place(stack: str) -> RunPlace:
    """Return where the run of a stack is; an empty name means the selected stack.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack has no run.
    """
    return parse_run(outputs_of(stack, RUN_NEEDED, about_run=True), stack)


def parse_run(given: dict[str, Any], stack: str) -> RunPlace:
    """Read the place of the run from a stack's outputs. This function is pure.

    Raises ValueError if an output is missing, so that the stack has no run.
    """
    _require(given, RUN_NEEDED, stack, NO_RUN)
    return RunPlace(
        access=_access(given),
        namespace=str(given["namespace"]),
        owner=str(given["owner"]),
        image=str(given["image"]),
        run_path=str(given["runPath"]),
        workload=str(given["workload"]),
        claim=str(given["claim"]),
        bpe_file=str(given.get("bpeFile") or ""),
        placement=_placement(given),
        world_size=int(given.get("worldSize") or 1),
        program=str(given.get("program") or ""),
    )


def cluster_place(stack: str) -> ClusterPlace:
    """Return where the cluster of a stack is, whether or not the stack has a run.

    Raises:
        ValueError: there is no pulumi, no such stack, or the stack is not up.
    """
    given = outputs_of(stack, CLUSTER_NEEDED)
    _require(given, CLUSTER_NEEDED, stack, NOT_UP)
    asker = None
    if given.get("image") and given.get("claim"):
        asker = Asker(str(given["image"]), str(given["claim"]), _placement(given))
    return ClusterPlace(_access(given), str(given["namespace"]), asker)


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
    given = outputs_of(stack, ("maxSteps",))
    refuse_program(
        str(given.get("program") or ""), "extend", "sets how long disttrain's own trainer trains"
    )
    _require(given, ("maxSteps",), stack, NO_RUN)
    return int(given["maxSteps"])


def _placement(given: dict[str, Any]) -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load(str(given.get("podPlacement") or "{}")))


def _require(given: dict[str, Any], wanted: tuple[str, ...], stack: str, problem: str) -> None:
    """Raise ValueError with the problem if an output is missing.

    Args:
        given: the stack's outputs.
        wanted: the names of the outputs that are needed.
        stack: the name of the stack; an empty text means the selected stack.
        problem: NOT_UP or NO_RUN. Without a kubeconfig it is NOT_UP in any case. With the outputs
            of a run it is OLD instead of NO_RUN.
    """
    missing = [name for name in wanted if not given.get(name)]
    if missing:
        which = f"stack {stack}" if stack else SELECTED
        told = problem if given.get("kubeconfig") else NOT_UP
        told = OLD if told == NO_RUN and given.get("runPath") else told
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
