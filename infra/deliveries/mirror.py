"""Delivery `mirror`: to the first machine as by `import`; the others get it from there themselves.

k3s' embedded registry (Spegel) lets its nodes give each other what lies in their containerds. So
the layers go over SSH once, and through the machines' own network from then on.
https://docs.k3s.io/installation/registry-mirror
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from infra.deliveries.command import content_arguments, delivered, last_digest
from infra.deliveries.import_ import (
    check_minutes,
    ensure_command,
    keep_on_node,
    platform,
    program,
)
from infra.deliveries.kind import ClusterFacts, Delivered, DeliveryKind, DeliveryRequest
from infra.image.plan import ImagePlan
from infra.image.prune import KEEP_UNUSED_MINUTES
from infra.image.pull import DIGEST_VARIABLE
from infra.registry import OptionError

if TYPE_CHECKING:
    import pulumi

FIRST_PATCHES = {29: 12, 30: 8, 31: 4}  # of Kubernetes 1.x, with an embedded registry that is GA
LEAST_SECONDS = 10
INVENTED = "images.disttrain.internal/trainer"  # no name server knows anything below `internal`


@dataclass(frozen=True)
class MirrorOptions:
    """Keys of `imageDeliveryOptions`.

    Args:
        keepUnusedMinutes: as for `import`.
        pullTimeoutSeconds: how long a machine tries to get the image from the others. With some
            releases of k3s it takes the first machine 9 minutes to offer what was imported.
    """

    keepUnusedMinutes: int = KEEP_UNUSED_MINUTES  # noqa: N815 - as the stack's settings name it
    pullTimeoutSeconds: int = 1800  # noqa: N815

    def __post_init__(self) -> None:
        check_minutes(self.keepUnusedMinutes)
        if self.pullTimeoutSeconds < LEAST_SECONDS:
            raise OptionError(
                "pullTimeoutSeconds",
                "machines need a while to learn who has the image",
                f"Set {LEAST_SECONDS} or more",
            )


def check(request: DeliveryRequest) -> None:
    """Raise ValueError where the nodes cannot give the image to each other."""
    _check_cluster(request.cluster)
    if not request.further:
        raise ValueError(
            "imageDelivery: 'mirror' cannot be used: there is only one machine, so no other one "
            "could pull the image from it. Set import, which does the same on one machine, or list "
            "further machines in nodes."
        )
    _check_repository(request.plan)
    _check_registries(request)


def _check_cluster(cluster: ClusterFacts) -> None:
    if cluster.whose == "existing":
        raise ValueError(
            "imageDelivery: 'mirror' cannot be used with cluster: existing: it changes "
            "settings of k3s on every node (embedded-registry, registries.yaml), and disttrain "
            "does not change these nodes. Set registry; with one node that is this machine, import."
        )
    if cluster.whose == "adopted":
        raise ValueError(
            "imageDelivery: 'mirror' cannot be used with k3sExisting: adopt: it takes settings of "
            "k3s on every node (embedded-registry, registries.yaml), and a k3s that was adopted is "
            "never changed. Set import or registry."
        )
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", cluster.k3s_version)
    assert found, cluster.k3s_version
    major, minor, patch = map(int, found.groups())
    if (major, minor) < (1, min(FIRST_PATCHES)) or patch < FIRST_PATCHES.get(minor, 0):
        first = ", ".join(f"v1.{number}.{patch}" for number, patch in FIRST_PATCHES.items())
        raise ValueError(
            f"imageDelivery: 'mirror' cannot be used: k3sVersion is {cluster.k3s_version}, and "
            f"k3s' embedded registry is finished from {first} and v1.32.0 on. Set such a "
            "k3sVersion, or imageDelivery import or registry."
        )


def _check_repository(plan: ImagePlan) -> None:
    if is_local(plan.host):
        raise ValueError(
            f"imageRepository: {plan.repository!r} cannot be used with imageDelivery: mirror: k3s "
            f"gives no images of {plan.host!r} to other nodes, for which it would be another "
            "machine. Set a name with the host of a registry, which need not exist: "
            f"pulumi config set imageRepository {INVENTED}"
        )


def _check_registries(request: DeliveryRequest) -> None:
    """The user's own entry for the host must leave the image to the nodes."""
    content = cast(Mapping[str, Any], json.loads(request.cluster.registries or "{}"))
    host = request.plan.host
    mirrors = cast(object, content.get("mirrors") or {})
    if not isinstance(mirrors, dict):
        raise ValueError(
            "k3sRegistries.mirrors: [secret] cannot be used: it is not an object, and "
            f"imageDelivery: mirror adds {host!r} to it. Write it like {{registry.example.org: "
            "{}}."
        )
    if cast(dict[str, object], mirrors).get(host):
        raise ValueError(
            f"k3sRegistries.mirrors[{host!r}]: [secret] cannot be used with imageDelivery: mirror: "
            "it sends the nodes elsewhere for the image, which they are to get from each other. "
            "Remove what is in it, or set imageRepository to a name with another host: "
            f"pulumi config set imageRepository {INVENTED}"
        )


def is_local(host: str) -> bool:
    """Whether k3s takes a registry for one on the node itself, of which it mirrors nothing."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """The commands that keep the image in containerd: `<name>-ensure` for the first machine, and
    `<name>-ensure-<node>` for each further one, which pulls what the first one has by its digest.
    """
    share = f"{ensure_command(request)} --share"
    first = keep_on_node(f"{name}-ensure", request, request.node, share, opts)
    digest: Mapping[str, pulumi.Input[str]] = {DIGEST_VARIABLE: first.stdout.apply(last_digest)}
    for node in request.further:
        keep_on_node(
            f"{name}-ensure-{node.name}", request, node, pull_command(request), opts, digest
        )
    return delivered(request, first)


def pull_command(request: DeliveryRequest) -> str:
    """Lets a node get the image from the others, by the digest that the first machine has."""
    options = cast(MirrorOptions, request.options)
    words = [
        *program("pull", request),
        *content_arguments(request),
        *("--limit-seconds", str(options.pullTimeoutSeconds)),
        *("--keep-unused-minutes", str(options.keepUnusedMinutes)),
    ]
    return shlex.join([*words, *platform(request)])


KIND = DeliveryKind(
    name="mirror",
    deliver=deliver,
    check=check,
    options=MirrorOptions,
    needs_node=True,
    serves_further=True,
    embedded_registry=True,
)
