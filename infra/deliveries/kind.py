"""Defines what a delivery is: a way to bring the trainer image to where pods can start from it."""

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
        name: name of the node in the cluster; empty for the first machine, which has no name in
            the settings.
        access: JSON text for `infra.image.reach`, with key and password; empty: ctr runs on this
            machine as this user.
        shown: a text that differs for each node, for messages and the cache. It holds no secret.
        is_lost: whether the node is lost, so that nothing can be asked or removed there.
    """

    name: str = ""
    access: str = field(default="", repr=False)
    shown: str = "this machine"
    is_lost: bool = False


@dataclass(frozen=True)
class DeliveryRequest:
    """The wanted image, what it is made of, and the nodes that need it.

    Args:
        plan: names and inputs of the image.
        builder: `auto`, `docker`, `podman` or `buildah`.
        build_on: `here` or `node`.
        bundled_layout: folder of the dependencies in an air-gap bundle; None: they are built.
        ctr: the command that runs containerd's ctr on the node.
        containerd_address: containerd's socket on the node; empty: ctr's default.
        node: the first machine.
        further: the further machines, those of the setting `nodes`.
        torch_index_login: address of torch's packages with user and password; empty: none is
            needed.
        proxies: the proxy variables for builds.
        authorities: certificates (PEM) that builds trust in addition to the usual ones; empty:
            none.
        namespace: Kubernetes namespace of the pods.
        kubeconfig: the text of the cluster's kubeconfig, by which a node's command asks what the
            pods on other nodes need; empty: there is only one node.
        options: an instance of the kind's options dataclass.
        owner: the stack that owns the platform, whose setting names the image's repository; empty:
            it is this stack.
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
    kubeconfig: pulumi.Input[str] = field(default="", repr=False)
    options: Any = None
    owner: str = ""


@dataclass(frozen=True)
class Delivered:
    """What was delivered.

    Args:
        reference: full name with tag, by which pods ask for the image.
        digest: digest of the manifest that the kubelet will use.
    """

    reference: pulumi.Output[str]
    digest: pulumi.Output[str]


@dataclass(frozen=True)
class Pull:
    """How pods get the image. It is known before anything is delivered.

    Args:
        policy: `imagePullPolicy` of the containers.
        secrets: names of Secrets for `imagePullSecrets`.
        docker_config: content for the first of these Secrets, which the platform then makes;
            empty: the Secrets exist already, or there is none.
    """

    policy: str = "IfNotPresent"
    secrets: tuple[str, ...] = ()
    docker_config: str = field(default="", repr=False)


def accept(asked: DeliveryAsked) -> Iterable[Refusal]:
    """Refuse nothing. It is the check of a kind that can deliver everything."""
    del asked
    return ()


def without_credentials(request: DeliveryRequest) -> Pull:
    """Pull without a login, because the images are on the nodes or everybody may pull them."""
    del request
    return Pull()


@dataclass(frozen=True)
class DeliveryKind:
    """One choice of the setting `imageDelivery`.

    Args:
        name: the value of the setting.
        deliver: registers the resources that bring the image. It gets the prefix of their names,
            the request, and the options of each resource (parent and dependencies).
        check: returns what cannot be met. It runs while the settings are read, so that its answers
            are reported with all other problems.
        pull: returns how pods get the image.
        options: dataclass of the keys that `imageDeliveryOptions` may hold.
        needs_node: whether it writes to the node's own containerd. With `cluster: existing`, the
            machine that runs Pulumi must then be the node.
        serves_further: whether a kind that writes to nodes also brings the image to
            `request.further`.
        shared_options: names of the options that also apply to runs of other stacks on the platform
            that bring images of their own (`program.build`). None of them holds a login.
        builds_for_this_machine: whether the image is built for processors of the kind that the
            machine with Pulumi has, whatever the nodes have.
        embedded_registry: whether the nodes of this stack's k3s give each other the images of the
            registry that imageRepository names. k3s is then set up for it on every node.
    """

    name: str
    deliver: Callable[[str, DeliveryRequest, pulumi.ResourceOptions], Delivered]
    check: Callable[[DeliveryAsked], Iterable[Refusal]] = accept
    pull: Callable[[DeliveryRequest], Pull] = without_credentials
    options: type = NoOptions
    needs_node: bool = False
    serves_further: bool = False
    shared_options: tuple[str, ...] = ()
    builds_for_this_machine: bool = False
    embedded_registry: bool = False
