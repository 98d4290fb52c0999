"""Reads the settings of the trainer's image: its names, and how it is built and imported."""

import re
from dataclasses import dataclass
from typing import Literal, cast

from infra.image.plan import ImagePlan, plan_image
from infra.settings.cluster import ClusterSettings
from infra.settings.devices import Devices
from infra.settings.node import HostSettings
from infra.settings.project import PROJECT_ROOT
from infra.settings.reader import Reader
from infra.settings.secret import Secret
from infra.settings.torch_index import refuse_index

_IMAGE = r"(?!.*//)[A-Za-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]{64})?"


@dataclass(frozen=True)
class ImageSettings:
    """The image's names and how it is built and imported.

    `torch_index_url` holds no user and no password. `torch_index_login` is the same address with
    them; it is None unless the address is encrypted in the stack's file.
    """

    plan: ImagePlan
    base: str
    builder: str
    build_on: Literal["here", "node"]
    torch_index_url: str
    torch_index_login: Secret | None
    ctr: str
    containerd_address: str


def read_builder(reader: Reader) -> str:
    """Read which program builds images: `auto`, `docker`, `podman` or `buildah`."""
    return reader.choice("imageBuilder", ("auto", "docker", "podman", "buildah"))


def read_image(
    reader: Reader, host: HostSettings, cluster: ClusterSettings, devices: Devices
) -> ImageSettings | None:
    """Read how the image is made; None if it cannot be planned, because its name is wrong."""
    repository, base = reader.text("imageRepository"), reader.text("imageBase")
    index = reader.url("torchIndexUrl", example="https://download.pytorch.org/whl/cu118")
    torch_index_url = index.url_without_password if index else ""
    if index and index.url_has_password:
        reader.require_encrypted("torchIndexUrl")
    hidden = index is not None and reader.is_encrypted("torchIndexUrl")
    if refused := refuse_index(torch_index_url, devices.accelerator == "gpu"):
        reader.problem("torchIndexUrl", torch_index_url, refused.reason, refused.hint)
    builder = read_builder(reader)
    build_on = cast(Literal["here", "node"], reader.choice("imageBuildOn", ("here", "node")))
    if build_on == "node" and (host.ssh is None or cluster.kind != "k3s"):
        reader.problem(
            "imageBuildOn",
            build_on,
            "building at the node takes host: ssh and cluster: k3s",
            "Set here",
        )
    # The ctr that k3s brings knows the socket of k3s' containerd.
    ctr = reader.command("ctr") or ("k3s ctr" if cluster.kind == "k3s" else "ctr")
    address = reader.text(
        "containerdAddress",
        pattern=r"(/\S+)?",
        form="an absolute path",
        example="/run/containerd/containerd.sock",
    )
    if not re.fullmatch(_IMAGE, base) and reader.are_right("imageBase"):
        reader.problem(
            "imageBase",
            base,
            "it is not the name of an image",
            "Write it like docker.io/library/python:3.11-slim-bookworm",
        )
    try:
        plan = plan_image(PROJECT_ROOT, repository, base, torch_index_url or None)
    except ValueError as error:
        if reader.are_right("imageRepository"):
            reader.add_problem(str(error))
        return None
    return ImageSettings(
        plan, base, builder, build_on, torch_index_url, index if hidden else None, ctr, address
    )
