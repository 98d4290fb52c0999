"""Delivery `registry`: pushes the image to an image registry, from which every node pulls.

One command, `python -m infra.image push`, builds and pushes (docs/image.md).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from infra.command_line import cache_folder
from infra.deliveries.command import (
    PYTHON,
    delivered,
    limits,
    plan_arguments,
    project_path,
)
from infra.deliveries.kind import Delivered, DeliveryKind, DeliveryRequest, Pull
from infra.image import presence
from infra.image.build_context import TORCH_INDEX_VARIABLE
from infra.image.plan import VARIABLE as PLANNED_VARIABLE
from infra.image.registry.login import (
    PASSWORD_VARIABLE,
    Login,
    find_login,
    pull_config,
)
from infra.registry import OptionError, Refusal
from infra.settings.asked import DeliveryAsked
from infra.settings.secret import Secret

if TYPE_CHECKING:
    import pulumi

PULL_SECRET = "image-registry"
_SECRET = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


@dataclass(frozen=True)
class RegistryOptions:
    """Keys of `imageDeliveryOptions`.

    Args:
        user: the user who pushes, and who pulls on the nodes; empty: the image is pushed with the
            login of docker or podman on this machine.
        password: the user's password.
        pullSecret: name of an existing Secret in the namespace, with which the nodes pull; empty:
            the nodes pull with `user` and `password`, or, without these, with their own logins.
        plainHttp: whether the registry speaks HTTP without TLS.
        compression: `gzip`, or `none` if the network is faster than the compression.
    """

    user: str = ""
    password: Secret | None = None
    pullSecret: str = ""  # noqa: N815 - as the stack's settings name it
    plainHttp: bool = False  # noqa: N815
    compression: str = "gzip"

    def __post_init__(self) -> None:
        if bool(self.user) != bool(self.password):
            raise OptionError(
                "password" if self.user else "user",
                "a login is a user and a password",
                "Set both, or none of them to use the login that docker or podman has on this "
                "machine",
            )
        if re.search(r"[:\x00-\x1f\x7f]", self.user):
            raise OptionError(
                "user",
                "a login ends the user at the first colon, and takes no control character",
                "Set the user alone, and the password by `pulumi config set --secret --path "
                "imageDeliveryOptions.password`",
            )
        if self.pullSecret and not re.fullmatch(_SECRET, self.pullSecret):
            raise OptionError(
                "pullSecret",
                "it is not the name of a Secret",
                "Set one that `kubectl -n NAMESPACE get secret` lists",
            )
        if self.compression not in ("gzip", "none"):
            raise OptionError(
                "compression", "layers are compressed by gzip or not at all", "Set gzip or none"
            )


def check(asked: DeliveryAsked) -> Iterator[Refusal]:
    """Refuse settings that cannot work with a registry."""
    if asked.host == "localhost":
        yield Refusal(
            "imageRepository",
            asked.repository,
            "with imageDelivery: registry it names no registry, and each node would look for one "
            "on itself",
            "Set the name of a repository that all nodes reach, such as "
            "registry.example.org/team/trainer",
        )
    if asked.build_on == "node":
        yield Refusal(
            "imageBuildOn",
            "node",
            "with imageDelivery: registry the image is pushed from the machine that builds it, "
            "which is this one",
            "Set here",
        )


def pull(request: DeliveryRequest) -> Pull:
    """Return how pods get the image: with the named Secret, or with one made of the login."""
    options = _options(request)
    if options.pullSecret:
        return Pull(secrets=(options.pullSecret,))
    if options.user and options.password:
        login = Login(options.user, options.password.text)
        return Pull(
            secrets=(PULL_SECRET,), docker_config=pull_config(request.plan.repository, login)
        )
    return Pull()


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """Register the command that keeps the image in the registry, `<name>-push`.

    The command deletes nothing: the name is a hash of the content, so other clusters may pull it.
    """
    import pulumi
    from pulumi_command import local

    command = local.Command(
        f"{name}-push",
        create=push_command(request),
        environment=_environment(request),
        stdin=request.authorities or None,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions(custom_timeouts=limits()),
        ),
    )
    return delivered(request, command)


def push_command(request: DeliveryRequest) -> str:
    """Return the command that pushes what the registry lacks, from a build or from the bundle."""
    options = _options(request)
    words = [PYTHON, "-m", "infra.image", "push", *plan_arguments(request)]
    if request.bundled_layout:
        words += ["--layout", project_path(request.bundled_layout)]
    else:
        words += ["--builder", request.builder]
    if request.authorities:
        words += ["--authorities", "-"]
    words += ["--compression", options.compression]
    if options.user:
        words += ["--user", options.user]
    if options.plainHttp:
        words.append("--plain-http")
    if request.owner:
        words += ["--repository-of", request.owner]
    return shlex.join(words)


def ask_registry(request: DeliveryRequest, proxies: Mapping[str, str]) -> str:
    """Ask the registry for the image, and return what `presence.noted_request` returns."""
    # They are imported here, because the import of the client takes a tenth of a second.
    from infra.image.registry.connection import Access, RegistryError
    from infra.image.registry.push import noted, tag_of
    from infra.image.registry.repository import Repository

    options, plan = _options(request), request.plan

    def ask() -> str | None:
        try:
            if options.user and options.password:
                login = Login(options.user, options.password.text)
            else:
                login = find_login(plan.repository, os.environ, Path.home())
            access = Access(
                plan.repository,
                login,
                options.plainHttp,
                request.authorities,
                {**os.environ, **proxies},
                presence.PATIENCE_SECONDS,
            )
            image = Repository(access).image(tag_of(plan))
        except (RegistryError, ValueError):
            # This is no error of a preview, because the registry may not be reachable yet. The
            # command will ask again.
            return None
        return None if image is None else noted(image)

    return presence.noted_request([plan.reference], cache_folder(), ask)


def _environment(request: DeliveryRequest) -> dict[str, pulumi.Input[str]]:
    """Return the command's variables. The command runs again if one changes.

    They change with the tag, or if the image has gone from the registry.
    """
    import pulumi

    options = _options(request)

    async def ask() -> str:
        known: dict[str, str] = {}
        for name, value in request.proxies.items():
            known[name] = cast(str, await pulumi.Output.from_input(value).future())
        return await asyncio.to_thread(ask_registry, request, known)

    values: dict[str, pulumi.Input[str]] = {
        PLANNED_VARIABLE: request.plan.reference,
        presence.VARIABLE: pulumi.Output.from_input(ask()),
        **request.proxies,
    }
    if options.password:
        values[PASSWORD_VARIABLE] = options.password.output
    if request.torch_index_login:
        values[TORCH_INDEX_VARIABLE] = request.torch_index_login
    return values


def _options(request: DeliveryRequest) -> RegistryOptions:
    return cast(RegistryOptions, request.options)


KIND = DeliveryKind(
    name="registry",
    deliver=deliver,
    check=check,
    pull=pull,
    options=RegistryOptions,
    shared_options=("plainHttp", "compression"),
    builds_for_this_machine=True,
)
