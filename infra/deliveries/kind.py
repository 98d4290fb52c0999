"""What a delivery is: a way to bring the trainer image to where pods can be started from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.image.plan import ImagePlan
from infra.registry import NoOptions, Refusal
from infra.settings.asked import DeliveryAsked

if TYPE_CHECKING:
    import pulumi


@dataclass(frozen=True)
class NodeTarget:
    """A node whose containerd is reached from here.

    Args:
        name: of the node in the cluster; empty for the first machine, whose name nobody sets.
        way: JSON text for `infra.image.reach`, with key and password; empty: ctr runs here.
        shown: tells nodes apart, in messages and in the cache; holds no secret.
        is_lost: the node is gone for good; nothing can be asked or removed there.
    """

    name: str = ""
    way: str = field(default="", repr=False)
    shown: str = "this machine"
    is_lost: bool = False


@dataclass(frozen=True)
class DeliveryRequest:
    """The image that is wanted, what it is made of, and where it has to get to.

    Args:
        plan: names and inputs of the image.
        builder: `auto`, `docker`, `podman` or `buildah`.
        build_on: `here` or `node`.
        bundled_layout: folder of the dependencies in an air-gap bundle; None: they are built.
        ctr: the command that runs containerd's ctr on the node.
        containerd_address: containerd's socket on the node; empty: that command's own.
        node: the first machine.
        further: the other machines of `nodes`.
        torch_index_login: address of torch's packages with user and password; empty: none needed.
        proxies: the proxy variables for builds.
        authorities: certificates (PEM) that builds trust beside the usual ones; empty: none.
        namespace: Kubernetes namespace of the pods, for a Secret with a registry's credentials.
        options: an instance of the kind's options dataclass.
    """

    plan: ImagePlan
    builder: str = "auto"
    build_on: str = "here"
    bundled_layout: Path | None = None
    ctr: str = "ctr"
    containerd_address: str = ""
    node: NodeTarget = NodeTarget()
    further: tuple[NodeTarget, ...] = ()
    torch_index_login: pulumi.Input[str] = field(default="", repr=False)
    proxies: Mapping[str, pulumi.Input[str]] = field(default_factory=dict[str, Any], repr=False)
    authorities: str = field(default="", repr=False)
    namespace: str = ""
    options: Any = None


@dataclass(frozen=True)
class Delivered:
    """What was delivered.

    Args:
        reference: full name with tag, under which pods find the image.
        digest: of the manifest that the kubelet will use.
    """

    reference: pulumi.Output[str]
    digest: pulumi.Output[str]


@dataclass(frozen=True)
class Pull:
    """How pods get at the image; known before anything is delivered.

    Args:
        policy: `imagePullPolicy` of the containers.
        secrets: names of Secrets for `imagePullSecrets`.
        docker_config: content of the first of these Secrets, which the platform makes then; empty:
            all of them are there already, or there is none.
    """

    policy: str = "IfNotPresent"
    secrets: tuple[str, ...] = ()
    docker_config: str = field(default="", repr=False)


def accept(asked: DeliveryAsked) -> Iterable[Refusal]:
    """Refuse nothing: for a kind that can deliver whatever is asked."""
    del asked
    return ()


def without_credentials(request: DeliveryRequest) -> Pull:
    """Pull without a login: the images lie on the nodes, or everybody may pull them."""
    del request
    return Pull()


@dataclass(frozen=True)
class DeliveryKind:
    """One choice of the setting `imageDelivery`.

    Args:
        name: the value of the setting.
        deliver: registers the resources that bring the image. It gets the prefix of their names,
            the request, and the options of each of them (parent and dependencies).
        check: all that cannot be met. It runs while the settings are read, so that its answers are
            said with everything else that is wrong.
        pull: how pods get at the image.
        options: dataclass of the keys that `imageDeliveryOptions` may hold.
        needs_node: whether it writes to the node's own containerd. With `cluster: existing` the
            machine that runs Pulumi must be the node then.
        serves_further: whether it brings the image to `request.further`, where it writes to nodes.
        shared_options: names of options that also hold for the runs of other stacks on the platform
            that bring images of their own (`program.build`); none of them holds a login.
        embedded_registry: whether the nodes of our k3s give each other the images of the registry
            that imageRepository names. k3s is then set up for it on every node.
    """

    name: str
    deliver: Callable[[str, DeliveryRequest, pulumi.ResourceOptions], Delivered]
    check: Callable[[DeliveryAsked], Iterable[Refusal]] = accept
    pull: Callable[[DeliveryRequest], Pull] = without_credentials
    options: type = NoOptions
    needs_node: bool = False
    serves_further: bool = False
    shared_options: tuple[str, ...] = ()
    embedded_registry: bool = False
