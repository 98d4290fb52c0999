"""The trainer image in the node's containerd, kept by one command of infra.imaging."""

import asyncio
import json
import shlex
import sys
from typing import cast

import pulumi
from pulumi_command import local

from infra.imaging import presence
from infra.imaging.containerd import Containerd
from infra.imaging.reach import reached
from infra.node_environment import node_environment, node_text
from infra.proxy import build_environment
from infra.settings import BundleSettings, ImageSettings, Settings


class TrainerImage(pulumi.ComponentResource):
    """The name is known before anything is built: its tag is a hash of what goes into the image."""

    reference: pulumi.Output[str]
    """Full name with tag."""
    digest: pulumi.Output[str]
    """Of the manifest that containerd holds under that name."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        image = settings.image
        lost = settings.cluster.kind == "k3s" and settings.host.gone
        super().__init__(
            "disttrain:infra:TrainerImage", name, {"reference": image.plan.reference}, opts
        )
        self.command = local.Command(
            f"{name}-ensure",
            create=ensure_command(image, settings.bundle),
            delete=remove_command(image),
            # Changed inputs run the command again: a new tag (changed code), and a new time when
            # the image is not there any more. The look goes on beside the rest of the program.
            environment={
                "TRAINER_IMAGE": image.plan.reference,
                presence.VARIABLE: pulumi.Output.from_input(
                    "" if lost else asyncio.to_thread(look, settings)
                ),
                **build_environment(settings.proxy),
                **node_environment(settings),
            },
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=depends_on,
                delete_before_replace=True,
                # forgotten, as nothing can be asked or removed there
                ignore_changes=["environment"] if lost else None,
                retain_on_delete=lost or None,
                custom_timeouts=pulumi.CustomTimeouts(create="1h", update="1h", delete="10m"),
            ),
        )
        self.reference = pulumi.Output.from_input(image.plan.reference)
        self.digest = self.command.stdout.apply(last_digest)
        self.register_outputs({"reference": self.reference, "digest": self.digest})


def look(settings: Settings) -> str:
    """Ask the node's containerd for the image; the answer is `presence.wanted_at`'s."""
    image = settings.image
    with reached(node_text(settings)) as node:
        containerd = Containerd(
            shlex.split(image.ctr),
            image.containerd_address or None,
            node=node,
            patience_seconds=presence.PATIENCE_SECONDS,
        )
        return presence.wanted_at(image.plan, containerd)


def ensure_command(image: ImageSettings, bundle: BundleSettings | None) -> str:
    """Builds what is missing, or takes it from the bundle, and imports what containerd lacks."""
    layout = bundle.layout(image.plan.deps_hash) if bundle else None
    build = ["--builder", image.builder, "--build-on", image.build_on]
    options = ["--layout", str(layout)] if layout else build
    return shlex.join([*_imaging("ensure", image), *options])


def remove_command(image: ImageSettings) -> str:
    """Removes exactly these names, also when the sources have changed since."""
    names = (image.plan.reference, image.plan.deps_reference)
    options = [part for name in names for part in ("--reference", name)]
    return shlex.join([*_imaging("remove", image), *options])


def last_digest(stdout: str) -> str:
    """The digest in the last line of the command's output, a JSON object."""
    return cast(str, json.loads(stdout.strip().splitlines()[-1])["digest"])


def _imaging(action: str, image: ImageSettings) -> list[str]:
    return [
        *(sys.executable, "-m", "infra.imaging", action),
        *("--repository", image.plan.repository),
        *("--base-image", image.base),
        f"--torch-index-url={image.torch_index_url}",
        *("--ctr", image.ctr),
        f"--address={image.containerd_address}",
    ]
