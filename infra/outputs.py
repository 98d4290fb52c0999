"""What `pulumi stack output` shows."""

import dataclasses
from dataclasses import dataclass

import pulumi

from infra.cluster import Cluster
from infra.kubectl import Kubectl
from infra.manifests.sample_pod import sample_arguments
from infra.manifests.training_pod import TRAINING
from infra.namespace import Namespace
from infra.settings import Settings
from infra.trainer_image import TrainerImage
from infra.training import Training


@dataclass(frozen=True)
class StackOutputs:
    """The outputs; `export` gives them their names in camelCase."""

    namespace: pulumi.Output[str]
    """Kubernetes namespace of everything."""
    topology: str
    """single-pod or multi-pod."""
    workload: pulumi.Output[str]
    """Name of the training's Job or StatefulSet."""
    run_name: str
    """Folder of the run below `runs`."""
    max_steps: int
    """Length of the run in optimiser updates."""
    world_size: int
    """Number of ranks over all pods."""
    data_path: str
    """The volume as pods see it."""
    host_data_path: str
    """The volume as the node sees it."""
    run_path: str
    """Checkpoints, metrics and TensorBoard logs of the run, as pods see them."""
    host_run_path: str
    """The same on the node."""
    image: pulumi.Output[str]
    """Full name of the trainer image."""
    image_digest: pulumi.Output[str]
    """Digest under which containerd holds it."""
    kubeconfig: pulumi.Output[str]
    """Of a cluster that was installed here its content (a secret), else the path that was given."""
    logs_command: str
    """Follows the logs of all ranks."""
    sample_command: str
    """Writes text with the newest checkpoint."""

    def export(self) -> None:
        """Make them the outputs of the stack."""
        for field in dataclasses.fields(self):
            first, *rest = field.name.split("_")
            name = first + "".join(word.capitalize() for word in rest)
            pulumi.export(name, getattr(self, field.name))


def stack_outputs(
    settings: Settings,
    cluster: Cluster,
    kubectl: Kubectl,
    namespace: Namespace,
    training: Training,
    image: TrainerImage,
) -> StackOutputs:
    """Gather the outputs of a stack."""
    compute, run = settings.compute, settings.run
    selector = f"app.kubernetes.io/part-of=disttrain,app.kubernetes.io/component={TRAINING}"
    logs = f"-n {settings.namespace} logs -f --prefix --tail=-1 -l {selector}"
    return StackOutputs(
        namespace=namespace.namespace_name,
        topology=compute.topology,
        workload=training.workload_name,
        run_name=run.run_name,
        max_steps=run.train.max_steps,
        world_size=compute.pods * compute.ranks_per_pod,
        data_path=run.data_root,
        host_data_path=str(settings.storage.data_root),
        run_path=str(run.run_dir),
        host_run_path=str(settings.storage.data_root / "runs" / run.run_name),
        image=image.reference,
        image_digest=image.digest,
        kubeconfig=cluster.kubeconfig,
        logs_command=kubectl.for_people(logs),
        sample_command=kubectl.for_people(sample_arguments(settings)),
    )
