"""The outputs of the stack, which `pulumi stack output` shows."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pulumi

from infra.kube_command import Connection
from infra.names import DATA_MOUNT, EARLY_OUTPUTS
from infra.one_line import one_line
from infra.platform.facts import PlatformFacts
from infra.platform.make import MadePlatform
from infra.run.make import MadeRun
from infra.settings import RunSettings


@dataclass(frozen=True)
class PlatformOutputs:
    """Outputs of a stack that owns its platform. `export` turns the names into camelCase."""

    platform: pulumi.Output[str]
    """The facts that another stack reads when its setting `platform` names this stack: YAML on one
    line, with a version and without secrets."""
    image_digest: pulumi.Output[str]
    """The digest of the trainer image on the node."""
    host_data_path: str
    """The volume's folder on the node; empty if the volume is not a folder of a node."""


@dataclass(frozen=True)
class ClusterOutputs:
    """Outputs of every stack: how to reach the cluster, and how to find this stack's objects."""

    namespace: str
    """The Kubernetes namespace of the platform and its runs."""
    former_namespaces: str
    """The namespaces of former `up`s, in which the run may still be, separated by spaces.
    infra/run/former_namespaces.py reads them."""
    kubeconfig: pulumi.Output[str]
    """The kubeconfig's content (a secret) for a k3s that disttrain installed; otherwise its path,
    as in the settings."""
    kube_context: str
    """The context of the kubeconfig; empty for its current context."""
    owner: pulumi.Output[str]
    """The value of the label `disttrain.dev/owner` on the objects of this stack."""
    image: str
    """The full name of the trainer image."""
    claim: str
    """The name of the claim that every pod mounts."""
    data_path: str
    """The folder at which pods mount the volume."""
    runtime_class: str
    """The RuntimeClass of pods with GPUs; empty for the cluster's default."""


@dataclass(frozen=True)
class RunOutputs:
    """Outputs of a stack that has a run."""

    topology: str
    """The kind of workload: single-pod, multi-pod or another one."""
    workload: pulumi.Output[str]
    """The name of the training's Job, StatefulSet or other object."""
    volume_proof: pulumi.Output[str]
    """How long the nodes took before the first step to write to the volume, and how long it took
    until all nodes saw these writes; or a sentence that says why this is not known."""
    queue_place: pulumi.Output[str]
    """What the run waited for in its queue, its place there, and who held the quota; or that the
    run was admitted, or is in no queue. It says whether that was when the newest `up` began, or
    when an `up` last waited for the run. `./disttrain status` shows the present state."""
    run_name: str
    """The name of the run's folder below `runs`."""
    program: str
    """The command of the user's own program; empty if disttrain's trainer runs."""
    max_steps: int
    """The length of the run in optimiser updates; 0 if only the user's own program knows it."""
    world_size: int
    """The number of ranks in all pods together."""
    bpe_file: str
    """The path in the pods of GPT-2's BPE merge table from a bundle; empty if tiktoken downloads
    the table."""
    run_path: str
    """The folder of the run's checkpoints, metrics and TensorBoard logs in the pods."""
    host_run_path: str
    """The same folder on the node; empty if the volume is not a folder of a node."""
    pod_placement: str
    """Fields of a pod's spec, as YAML on one line, for the pods of `./disttrain sample`."""
    logs_command: str
    """The command that follows the logs of all ranks."""
    sample_command: str
    """The command that generates text with the newest checkpoint; empty for a user's own
    program."""


def cluster_outputs(
    facts: PlatformFacts, connection: Connection, former_namespaces: list[str]
) -> ClusterOutputs:
    """The outputs of every stack."""
    return ClusterOutputs(
        namespace=facts.namespace,
        former_namespaces=" ".join(former_namespaces),
        kubeconfig=connection.kubeconfig,
        kube_context=facts.context,
        owner=connection.owner,
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
    """Register these values as outputs of the stack."""
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
"""The outputs that are known only after `up` has waited for the training."""


@dataclass(frozen=True)
class EarlyOutputsArgs:
    """Outputs of the stack.

    Args:
        cluster: how to reach the cluster.
        run: the outputs of the stack's run.
    """

    cluster: ClusterOutputs
    run: RunOutputs


class EarlyOutputs(pulumi.ComponentResource):
    """The stack's outputs that are known before the training has made a step.

    Pulumi stores the outputs of a stack only when an `up` has succeeded. While the first `up` waits
    for the training, and after it has failed, ./disttrain reads what it needs from this component
    (cli/stack_outputs.py).
    """

    known: Mapping[str, pulumi.Input[Any]]
    """The values by their names among the stack's outputs."""

    def __init__(
        self, name: str, args: EarlyOutputsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(EARLY_OUTPUTS, name, {}, opts)
        outputs = {**_in_camel_case(args.cluster), **_in_camel_case(args.run)}
        self.known = {key: outputs[key] for key in outputs if key not in KNOWN_LATE}
        self.register_outputs({"known": self.known})
