"""Reads `program.build`: a program's image, which is built from a folder of this machine.

It also reads how the image gets to the nodes if another stack owns the platform.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from infra.image.plan import ImagePlan
from infra.image.program_plan import DOCKERFILE, context_bytes, plan_program_image
from infra.image.program_plan import MOST_BYTES as CONTEXT_BYTES
from infra.settings.asked import DeliveryAsked
from infra.settings.image import read_builder
from infra.settings.kind_options import read_options
from infra.settings.kinds import Chosen, DeliveryChoice
from infra.settings.local_path import local_path
from infra.settings.proxy import read_ca_bundle
from infra.settings.reader import Reader

KEY = "program.build"


@dataclass(frozen=True)
class PlatformDelivery:
    """What runs of other stacks need to know about how a platform delivers images.

    Args:
        name: the setting `imageDelivery`.
        repository: the setting `imageRepository`.
        options: the `imageDeliveryOptions` that also apply to runs of other stacks. A login is
            never among them.
    """

    name: str = "import"
    repository: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class RunsDelivery:
    """How a run on another stack's platform delivers its own image.

    Args:
        delivery: the platform's delivery, with the options and the login of this stack.
        builder: the program that builds the image: `auto`, `docker`, `podman` or `buildah`.
        ca_bundle: certificates (PEM) that the build and the delivery trust in addition.
        owner: the stack that owns the platform.
    """

    delivery: Chosen
    builder: str
    ca_bundle: str
    owner: str


@dataclass(frozen=True)
class ProgramImage:
    """An image that `pulumi up` builds; `by_run` is None if the stack owns its platform."""

    plan: ImagePlan
    by_run: RunsDelivery | None = None


def read_build(
    reader: Reader,
    value: object,
    image: object,
    deliveries: Mapping[str, DeliveryChoice],
    platform: PlatformDelivery,
) -> ProgramImage | None:
    """Read the image that a folder's Dockerfile makes; None if there is none, or if it is wrong.

    Args:
        reader: gives the values and collects the problems with them.
        value: value of `program.build`; None or an empty text: there is none.
        image: value of `program.image`.
        deliveries: the kinds of delivery.
        platform: how the platform of another stack delivers images; not used if this stack owns
            its platform.
    """
    if value is None or value == "":
        return None
    hint = "Set the path of a folder with a file Dockerfile on this machine"
    if not isinstance(value, str):
        reader.problem(KEY, value, "it is not a text", hint)
        return None
    folder = local_path(value)
    owner = reader.text("platform")
    if image is not None:
        reader.problem(KEY, value, "program.image names an image already", "Remove one of them")
        return None
    if not (folder / DOCKERFILE).is_file():
        reader.problem(KEY, str(folder), f"there is no file {DOCKERFILE}", hint)
        return None
    if not owner:
        plan = _planned(reader, folder, reader.text("imageRepository"))
        return ProgramImage(plan) if plan else None
    by_run = _by_run(reader, value, owner, deliveries, platform)
    plan = _planned(reader, folder, platform.repository) if by_run else None
    return ProgramImage(plan, by_run) if plan else None


def _by_run(
    reader: Reader,
    value: str,
    owner: str,
    deliveries: Mapping[str, DeliveryChoice],
    platform: PlatformDelivery,
) -> RunsDelivery | None:
    """How a run on another stack's platform delivers its image; None if it cannot."""
    kind = deliveries.get(platform.name)
    if kind is None:
        reader.problem(
            KEY,
            value,
            f"stack {owner!r} delivers images by {platform.name!r}, which this stack does not know",
            "Name the module that registers it in extensions, as that stack does",
        )
        return None
    if kind.needs_node:
        reader.problem(
            KEY,
            value,
            f"stack {owner!r} owns the platform and brings images straight to its nodes "
            f"(imageDelivery: {platform.name}), which a run cannot: it has a kubeconfig and "
            "nothing else",
            "Let that stack deliver by a registry (`pulumi config set --stack "
            f"{owner} imageDelivery registry`, docs/image.md), or set the program there, or push "
            "the image to a registry that the nodes reach and name it in program.image",
        )
        return None
    options_key = "imageDeliveryOptions"
    given = reader.mapping(options_key)
    options = read_options(reader, options_key, f"imageDelivery: {platform.name}", kind.options)
    builder, ca_bundle = read_builder(reader), read_ca_bundle(reader)
    if options is None:
        return None
    theirs = {name: text for name, text in platform.options.items() if name not in given}
    options = replace(options, **theirs)
    for refusal in kind.check(DeliveryAsked(platform.repository, options=options)):
        reader.refuse(refusal)
    return RunsDelivery(Chosen(platform.name, options), builder, ca_bundle, owner)


def _planned(reader: Reader, folder: Path, repository: str) -> ImagePlan | None:
    try:
        size = context_bytes(folder)
        if size > CONTEXT_BYTES:
            reason = f"it has {size:,} bytes, and all of them go into the name of the image"
            hint = f"Name a folder with {CONTEXT_BYTES:,} bytes at most, and put data on the volume"
            reader.problem(KEY, str(folder), reason, hint)
            return None
        return plan_program_image(folder, repository)
    except OSError as error:
        hint = "Give your user the right to read all files in it"
        reader.problem(KEY, str(folder), f"it cannot be read ({error.strerror})", hint)
    except ValueError:
        pass  # The value of imageRepository is wrong, which image.py has noted.
    return None
