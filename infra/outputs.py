"""What `pulumi stack output` shows."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pulumi

from infra.names import DATA_MOUNT, EARLY_OUTPUTS
from infra.one_line import one_line
from infra.platform.facts import PlatformFacts
from infra.platform.make import MadePlatform
from infra.run.make import MadeRun
from infra.settings import RunSettings


@dataclass(frozen=True)
class PlatformOutputs:
    """Outputs of a stack that owns its platform; `export` gives them their names in camelCase."""

    platform: pulumi.Output[str]
    """What another stack reads when its setting `platform` names this one: YAML on one line, with
    a version; holds no secret."""
    image_digest: pulumi.Output[str]
    """Digest of the trainer image on the node."""
    host_data_path: str
    """The volume as the node sees it; empty where it is no folder of a node."""


@dataclass(frozen=True)
class ClusterOutputs:
    """Outputs of every stack: how to reach the cluster, and whose objects are this stack's."""

    namespace: str
    """Kubernetes namespace of everything."""
    former_namespaces: str
    """Those of before, in which the run may still be, with spaces between them;
    infra/run/former_namespaces.py reads them."""
    kubeconfig: pulumi.Output[str]
    """Content (a secret) for a k3s that was installed here, otherwise the path that was given."""
    kube_context: str
    """Context of the kubeconfig; empty: its current one."""
    owner: pulumi.Output[str]
    """Value of the label `disttrain.dev/owner` on the objects of this stack."""
    image: str
    """Full name of the trainer image."""
    claim: str
    """The claim that every pod mounts."""
    data_path: str
    """The volume as pods see it."""
    runtime_class: str
    """RuntimeClass of pods with GPUs; empty: the cluster's default one."""


@dataclass(frozen=True)
class RunOutputs:
    """Outputs of a stack that has a run."""

    topology: str
    """single-pod, multi-pod or another kind of workload."""
    workload: pulumi.Output[str]
    """Name of the training's Job, StatefulSet or other object."""
    volume_proof: pulumi.Output[str]
    """How long the nodes' writes to the volume took before the first step, and until all saw them;
    or a sentence that says why that is not known."""
    queue_place: pulumi.Output[str]
    """What the run waited for in its queue when `up` ended, at which place, and who held the quota;
    or that it had its place, or is in no queue. `./disttrain status` says what holds now."""
    run_name: str
    """Folder of the run below `runs`."""
    program: str
    """Command of the user's own program; empty: disttrain's trainer runs."""
    max_steps: int
    """Length of the run in optimiser updates; 0: only the user's own program knows it."""
    world_size: int
    """Number of ranks over all pods."""
    bpe_file: str
    """Path in the pods of GPT-2's BPE merge table from a bundle; empty: tiktoken downloads it."""
    run_path: str
    """Checkpoints, metrics and TensorBoard logs of the run, as pods see them."""
    host_run_path: str
    """The same on the node; empty where the volume is no folder of a node."""
    pod_placement: str
    """Fields of a pod's spec, as YAML on one line, that pods of `./disttrain sample` take."""
    logs_command: str
    """Follows the logs of all ranks."""
    sample_command: str
    """Writes text with the newest checkpoint; empty where a program of the user's own runs."""


def cluster_outputs(
    facts: PlatformFacts,
    kubeconfig: pulumi.Output[str],
    owner: pulumi.Output[str],
    former_namespaces: list[str],
) -> ClusterOutputs:
    """The outputs of every stack."""
    return ClusterOutputs(
        namespace=facts.namespace,
        former_namespaces=" ".join(former_namespaces),
        kubeconfig=kubeconfig,
        kube_context=facts.context,
        owner=owner,
        image=facts.image.reference,
        claim=facts.volume.claim,
        data_path=DATA_MOUNT,
        runtime_class=facts.runtime_class,
    )


def platform_outputs(made: MadePlatform) -> PlatformOutputs:
    """The outputs of a stack that owns its platform."""
    return PlatformOutputs(
        platform=made.cluster.generation.apply(made.facts.to_text),
        image_digest=made.image.digest,
        host_data_path=made.facts.volume.folder_on_host,
    )


def run_outputs(settings: RunSettings, facts: PlatformFacts, made: MadeRun) -> RunOutputs:
    """The outputs of a stack that has a run."""
    run, stack = settings.config, settings.stack
    on_host = facts.volume.folder_on_host
    return RunOutputs(
        topology=made.run.kind.name,
        workload=made.workload.workload_name,
        volume_proof=made.workload.volume_proof,
        queue_place=made.workload.queue_place,
        run_name=run.run_name,
        program=shlex.join(run.program.command),
        max_steps=0 if run.has_program else run.train.max_steps,
        world_size=made.run.world.world_size,
        bpe_file=made.run.parts.bpe_file,
        run_path=str(run.run_dir),
        host_run_path=f"{on_host}/runs/{run.run_name}" if on_host else "",
        pod_placement=one_line(made.run.task_placement),
        logs_command=f"./disttrain logs --stack {stack}",
        sample_command="" if run.has_program else f"./disttrain sample --stack {stack}",
    )


Outputs: TypeAlias = PlatformOutputs | ClusterOutputs | RunOutputs


def export(outputs: Outputs) -> None:
    """Make them outputs of the stack."""
    for name, value in _in_camel_case(outputs).items():
        pulumi.export(name, value)


def _in_camel_case(outputs: Outputs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(outputs):
        first, *rest = field.name.split("_")
        name = first + "".join(word.capitalize() for word in rest)
        found[name] = getattr(outputs, field.name)
    return found


KNOWN_LATE = ("volumeProof", "queuePlace")
"""The outputs that are known only when the training has made a step."""


@dataclass(frozen=True)
class EarlyOutputsArgs:
    """Outputs of the stack.

    Args:
        cluster: how to reach the cluster.
        run: of the stack's run.
    """

    cluster: ClusterOutputs
    run: RunOutputs


class EarlyOutputs(pulumi.ComponentResource):
    """The stack's outputs that are known before the training has made a step.

    Pulumi notes the outputs of a stack when an `up` has ended well. While the first one waits for
    the training, and after it has failed, ./disttrain finds here what it needs to look at the run
    (cli/stack_outputs.py).
    """

    known: Mapping[str, pulumi.Input[Any]]
    """By their names among the stack's outputs."""

    def __init__(
        self, name: str, args: EarlyOutputsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(EARLY_OUTPUTS, name, {}, opts)
        outputs = {**_in_camel_case(args.cluster), **_in_camel_case(args.run)}
        self.known = {key: outputs[key] for key in outputs if key not in KNOWN_LATE}
        self.register_outputs({"known": self.known})
