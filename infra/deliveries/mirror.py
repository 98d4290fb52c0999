"""Delivery `mirror`: imports the image at the first machine, from which the others pull it.

k3s' embedded registry (Spegel) lets nodes give each other the images in their containerds. So the
layers are sent over SSH once, and after that through the machines' own network.
https://docs.k3s.io/installation/registry-mirror
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from infra.deliveries.command import (
    LIMIT_SECONDS,
    content_arguments,
    delivered,
    last_digest,
)
from infra.deliveries.import_ import (
    check_minutes,
    ensure_command,
    keep_on_node,
    platform,
    program,
)
from infra.deliveries.kind import Delivered, DeliveryKind, DeliveryRequest
from infra.image.prune import KEEP_UNUSED_MINUTES
from infra.image.pull import DIGEST_VARIABLE
from infra.no_proxy import is_loopback
from infra.registry import OptionError, Refusal
from infra.settings.asked import ClusterFacts, DeliveryAsked

if TYPE_CHECKING:
    import pulumi

# minor of Kubernetes 1.x -> its first patch of k3s whose embedded registry is GA
FIRST_PATCHES = {29: 12, 30: 8, 31: 4}
LEAST_SECONDS = 10
MOST_SECONDS = LIMIT_SECONDS - 60  # so that the command can still say why it has failed
OF_THE_CLUSTER = ("cluster", "k3sExisting")  # the settings that say to whom the nodes belong
INVENTED = "images.disttrain.internal/trainer"  # No name server knows a name below `internal`.


@dataclass(frozen=True)
class MirrorOptions:
    """Keys of `imageDeliveryOptions`.

    Args:
        keepUnusedMinutes: as for `import`.
        pullTimeoutSeconds: how long a machine tries to get the image from the others. With some
            releases of k3s, the first machine offers an imported image only after 9 minutes.
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
        if self.pullTimeoutSeconds > MOST_SECONDS:
            raise OptionError(
                "pullTimeoutSeconds",
                f"pulumi ends the command after {LIMIT_SECONDS} s, and the error would not say "
                "what the machine lacks",
                f"Set {MOST_SECONDS} or less",
            )


def check(asked: DeliveryAsked) -> Iterator[Refusal]:
    """Refuse settings with which the nodes could not give the image to each other."""
    if asked.cluster.whose != "ours":
        yield _not_our_cluster(asked.cluster)
        return  # Further problems would not matter in such a cluster.
    yield from _old_k3s(asked.cluster.k3s_version)
    if not asked.further:
        yield Refusal(
            "imageDelivery",
            "mirror",
            "there is only one machine, so no other one could pull the image from it",
            "Set import, which does the same on one machine, or list further machines in nodes",
            with_keys=("nodes", *OF_THE_CLUSTER),
        )
    if is_local(asked.host):
        yield Refusal(
            "imageRepository",
            asked.repository,
            f"with imageDelivery: mirror k3s gives no images of {asked.host!r} to other nodes, for "
            "which it would be another machine",
            "Set a name with the host of a registry, which need not exist: "
            f"pulumi config set imageRepository {INVENTED}",
            with_keys=OF_THE_CLUSTER,
        )
    yield from _other_endpoints(asked)


def _not_our_cluster(cluster: ClusterFacts) -> Refusal:
    if cluster.whose == "existing":
        return Refusal(
            "imageDelivery",
            "mirror",
            "with cluster: existing disttrain does not change the nodes, and it takes settings of "
            "k3s on each of them (embedded-registry, registries.yaml)",
            "Set registry; with one node that is this machine, import",
        )
    return Refusal(
        "imageDelivery",
        "mirror",
        "with k3sExisting: adopt the k3s is never changed, and it takes settings of k3s on every "
        "node (embedded-registry, registries.yaml)",
        "Set import or registry",
    )


def _old_k3s(version: str) -> Iterator[Refusal]:
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", version)
    if not found:
        return  # The settings have noted that it is no version.
    major, minor, patch = map(int, found.groups())
    if (major, minor) < (1, min(FIRST_PATCHES)) or patch < FIRST_PATCHES.get(minor, 0):
        first = ", ".join(f"v1.{number}.{patch}" for number, patch in FIRST_PATCHES.items())
        yield Refusal(
            "imageDelivery",
            "mirror",
            f"k3sVersion is {version}, and k3s' embedded registry is finished from {first} and "
            "v1.32.0 on",
            "Set such a k3sVersion, or imageDelivery import or registry",
            with_keys=("k3sVersion", *OF_THE_CLUSTER),
        )


def _other_endpoints(asked: DeliveryAsked) -> Iterator[Refusal]:
    """Refuse an entry of k3sRegistries that sends the nodes to another place for the image."""
    content = cast(Mapping[str, Any], json.loads(asked.cluster.registries or "{}"))
    mirrors = cast(object, content.get("mirrors") or {})
    if not isinstance(mirrors, dict):
        yield Refusal(
            "k3sRegistries.mirrors",
            mirrors,
            f"it is not an object, and imageDelivery: mirror adds {asked.host!r} to it",
            "Write it like {registry.example.org: {}}",
            with_keys=OF_THE_CLUSTER,
        )
    elif cast(dict[str, object], mirrors).get(asked.host):
        yield Refusal(
            f"k3sRegistries.mirrors[{asked.host!r}]",
            "...",
            "it sends the nodes elsewhere for the image, which with imageDelivery: mirror they get "
            "from each other",
            "Remove what is in it, or set imageRepository to a name with another host: "
            f"pulumi config set imageRepository {INVENTED}",
            with_keys=OF_THE_CLUSTER,
        )


def is_local(host: str) -> bool:
    """Whether k3s takes the host for the node itself. It mirrors no images of such a registry."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    return is_loopback(name)


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """Register the commands that keep the image in the nodes' containerds.

    They are `<name>-ensure` for the first machine, and `<name>-ensure-<node>` for each further
    machine, which pulls the image of the first one by its digest.
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
    """Return the command by which a node gets the image from the others.

    It pulls by the digest that the first machine has, which is in its variable DIGEST_VARIABLE.
    """
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
