"""What a run has to know about its platform, as plain values.

The stack that owns the platform writes these values into its output `platform`. Stacks whose runs
use the platform read them from there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import yaml

from infra.one_line import one_line
from infra.settings import Devices, PlatformForRuns
from infra.settings.program_image import PlatformDelivery
from infra.settings.queues_topology import PlatformQueue

VERSION = 8


@dataclass(frozen=True)
class ImageFacts:
    """The trainer image that the platform has delivered, and what it was planned from.

    Args:
        reference: full name of the image, with its tag.
        pull_policy: when a kubelet pulls the image.
        pull_secrets: names of Secrets with a registry's credentials.
        repository: the setting `imageRepository`.
        base: the setting `imageBase`.
        torch_index_url: the setting `torchIndexUrl`, without credentials.
        delivery: the setting `imageDelivery`.
        delivery_options: the keys of `imageDeliveryOptions` that also count for runs of other
            stacks.
    """

    reference: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    repository: str
    base: str
    torch_index_url: str
    delivery: str
    delivery_options: Mapping[str, Any]


@dataclass(frozen=True)
class VolumeFacts:
    """What a run has to know about the volume of the platform.

    Args:
        claim: name of the claim that every pod mounts.
        access_mode: access mode of the claim, such as `ReadWriteMany`; empty: only the cluster
            knows it.
        group_writes: whether the kubelet has to give the volume to the group of the pods.
        identity: a text that changes when pods would see another volume.
        folder_on_host: the folder of the node that holds the data; empty: there is none.
    """

    claim: str
    access_mode: str
    group_writes: bool
    identity: str
    folder_on_host: str


@dataclass(frozen=True)
class PlatformFacts:
    """The facts about a platform that are no secrets.

    Args:
        stack: name of the stack that owns the platform, in the form that `pulumi --stack` accepts.
        accelerator: `gpu` or `cpu`.
        gpus: number of GPUs of the platform; 0 if it has only CPUs.
        gpus_are_shared: whether a GPU is offered several times.
        machines: number of the platform's own machines that are not lost; 1 if others run the
            cluster.
        namespace: Kubernetes namespace of the platform.
        cluster_identifier: names the cluster to the Kubernetes provider.
        kubeconfig_is_path: whether the output `kubeconfig` is a path, and not the content of a
            kubeconfig.
        context: the context in the kubeconfig; empty if the output is the content of a kubeconfig,
            whose current context is used.
        api_server: address to which the kubeconfig led at the platform's last `up`; empty if the
            output is the content of a kubeconfig.
        volume: the volume with the data.
        image: the trainer image.
        proxy: the proxies without passwords, and NO_PROXY. If they change, pods are made anew.
        ca_config_map: name of the ConfigMap with certificates to trust; empty: there is none.
        runtime_class: RuntimeClass of pods with GPUs; empty: the default one.
        is_gone: whether the platform's host is lost.
        cluster_grows: whether the cluster adds nodes when pods need them.
        queue: the queue that the platform makes for its runs.
    """

    stack: str
    accelerator: str
    gpus: int
    gpus_are_shared: bool
    machines: int
    namespace: str
    cluster_identifier: str
    kubeconfig_is_path: bool
    context: str
    api_server: str
    volume: VolumeFacts
    image: ImageFacts
    proxy: Mapping[str, Any]
    ca_config_map: str
    runtime_class: str
    is_gone: bool
    cluster_grows: bool
    queue: PlatformQueue

    @property
    def for_runs(self) -> PlatformForRuns:
        """The facts that the settings of a run are read with."""
        accelerator: Literal["gpu", "cpu"] = "gpu" if self.accelerator == "gpu" else "cpu"
        image = self.image
        return PlatformForRuns(
            Devices(accelerator, self.gpus, self.gpus_are_shared, self.machines),
            self.queue,
            PlatformDelivery(image.delivery, image.repository, image.delivery_options),
            on_k3s=not self.kubeconfig_is_path,
        )

    @property
    def identity(self) -> dict[str, Any]:
        """The facts that belong to every pod: if one of them changes, pods are made anew."""
        return {"storage": self.volume.identity, "proxy": dict(self.proxy)}

    def to_text(self, generation: str) -> str:
        """The text of the stack's output `platform`: YAML on one line.

        Args:
            generation: the identity of the cluster, see ClusterGeneration.
        """
        return one_line({"version": VERSION, "generation": generation, **asdict(self)})


def facts_from_text(text: object) -> tuple[PlatformFacts, str]:
    """Read the text that `PlatformFacts.to_text` has made.

    Returns:
        The facts, and the generation of the cluster.

    Raises:
        ValueError: another version of this program has written the text.
    """
    content = yaml.safe_load(text) if isinstance(text, str) else text
    fields = dict(cast(dict[str, Any], content)) if isinstance(content, dict) else {}
    version = fields.pop("version", "unknown")
    if version != VERSION:
        raise ValueError(
            f"its output `platform` has version {version}, and this program reads version "
            f"{VERSION}; run `pulumi up` on that stack with this program first"
        )
    generation = str(fields.pop("generation"))
    image: dict[str, Any] = dict(fields["image"])
    image["pull_secrets"] = tuple(image["pull_secrets"])
    fields["image"] = ImageFacts(**image)
    fields["volume"] = VolumeFacts(**fields["volume"])
    queue: dict[str, Any] = dict(fields["queue"])
    fields["queue"] = PlatformQueue(queue["name"], tuple(queue["levels"]))
    return PlatformFacts(**fields), generation
