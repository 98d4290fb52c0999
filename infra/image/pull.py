"""Lets a node get the image from the other nodes, and checks in its containerd that it has it."""

import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.command_line import Say
from infra.image import presence
from infra.image.containerd import REQUEST_LABEL, Containerd, ContainerdError
from infra.image.node import failure_reason
from infra.image.oci import Image
from infra.image.plan import ImagePlan
from infra.image.platforms import platform_of_image
from infra.image.prune import ensured_label, prune
from infra.image.sharing import by_digest, share
from infra.image.transfer import PINNED, in_spite_of_a_restart
from infra.image.wanted import NO_PLATFORM, PREFIX, Platform, want

DIGEST_VARIABLE = "IMAGE_DIGEST"  # the variable with the digest that the first node has
PAUSE_SECONDS = 3.0  # between two attempts
SAY_SECONDS = 30  # between two lines that say why the image is not there yet


@dataclass(frozen=True)
class Pulled:
    """What `pull` left in containerd."""

    image: str
    digest: str
    pulled: bool


@dataclass(frozen=True)
class Pull:
    """How the image is pulled.

    Args:
        puller: the command that pulls as the kubelet does, such as `["k3s", "crictl", "pull"]`.
        digest: digest of the image's manifest.
        limit_seconds: how long the pull is tried.
        request: the import request, which becomes a label of the image (presence.py); empty: none.
        keep_unused_minutes: older tags that were asked for within this time are not removed.
        wanted_by: the platform that wants the image.
    """

    puller: Sequence[str]
    digest: str
    limit_seconds: float
    request: str = ""
    keep_unused_minutes: int = 0
    wanted_by: Platform = NO_PLATFORM


def pull(plan: ImagePlan, containerd: Containerd, how: Pull, cache: Path, say: Say) -> Pulled:
    """Have the image with exactly this digest in containerd, complete and under its planned name.

    The image is pulled by its digest, so that no other node can give another content. Then it gets
    the tag that pods ask for. Afterwards this node gives the image to others, too.

    Args:
        plan: the image.
        containerd: the node's containerd.
        how: how the image is pulled.
        cache: folder that keeps new import requests.
        say: takes a line of progress.

    Raises:
        ContainerdError: no node gave the image in time (the text has the puller's message), or
            containerd does not hold the image afterwards.
        ValueError: the image is for another platform than the node's.
    """
    work = partial(_pull, plan, containerd, how, cache, say)
    return in_spite_of_a_restart(containerd, say, work)


def _pull(plan: ImagePlan, containerd: Containerd, how: Pull, cache: Path, say: Say) -> Pulled:
    """Do what `pull` says, once."""
    there, wanted_by = held(plan, containerd, how.digest), {}
    if not there:
        labels = containerd.labels().get(plan.reference, {})
        wanted_by = {key: value for key, value in labels.items() if key.startswith(PREFIX)}
        incomplete = containerd.images().keys() & names(plan, how.digest)
        if incomplete:  # Otherwise layers that are already unpacked would not be fetched again.
            say(f"image: {plan.reference} is there, but incomplete or with other content")
            containerd.remove_images(sorted(incomplete))
        start = time.monotonic()
        _until_pulled(containerd, how, by_digest(plan.repository, how.digest), say)
        containerd.ask(
            *("images", "tag", "--force"), by_digest(plan.repository, how.digest), plan.reference
        )
        say(f"image: pulled from the other nodes in {time.monotonic() - start:.1f} s")
    image = there or held(plan, containerd, how.digest)
    if image is None:
        raise ContainerdError(
            f"{containerd.shown('images check')}: after the pull containerd's namespace "
            f"{containerd.namespace!r} does not hold {plan.reference} with digest {how.digest}"
        )
    platform = containerd.platform()
    if platform and platform_of_image(image) != platform:
        raise ValueError(
            f"{plan.reference} is for {platform_of_image(image)}, but the node runs {platform}: "
            "the machines of one cluster that share an image have one kind of processor"
        )
    share(containerd, plan)
    label = {REQUEST_LABEL: how.request} if how.request else {}
    containerd.set_labels(plan.reference, {**PINNED, **wanted_by, **ensured_label(), **label})
    presence.forget(cache, how.request)
    want(containerd, plan, how.wanted_by)
    prune(plan, containerd, say, how.keep_unused_minutes)
    return Pulled(plan.reference, how.digest, pulled=there is None)


def names(plan: ImagePlan, digest: str) -> set[str]:
    """Return the names of the image: its tag, and its name by digest."""
    return {plan.reference, by_digest(plan.repository, digest)}


def held(plan: ImagePlan, containerd: Containerd, digest: str) -> Image | None:
    """Return the image if containerd holds it complete under its planned name; otherwise None."""
    image = containerd.complete_image(plan.reference)
    return image if image and image.manifest.digest == digest else None


def _until_pulled(containerd: Containerd, how: Pull, name: str, say: Say) -> None:
    """Try again until a node gives the image.

    A node that has the image needs some time to tell the others.
    """
    start = said = time.monotonic()
    while True:
        left = how.limit_seconds - (time.monotonic() - start)
        try:
            _attempt(containerd, how.puller, name, max(left, 1.0))
        except ContainerdError as error:
            now = time.monotonic()
            if now - start + PAUSE_SECONDS >= how.limit_seconds:
                raise ContainerdError(
                    f"{error}\nNo other node has given the image within {how.limit_seconds:g} s. "
                    "Nodes reach each other's TCP ports 5001 and 6443 for it, and `./disttrain "
                    "doctor` tries these; what k3s says on the node: journalctl -u k3s-agent. Some "
                    "releases of k3s, such as v1.35.2, offer an image that was imported only after "
                    "a restart (k3s#13794): then set another k3sVersion, or run `systemctl restart "
                    "k3s` on the first machine and pulumi up again"
                ) from None
            if now - said >= SAY_SECONDS:
                said = now
                say(f"image: {now - start:.0f} s: not pulled yet; {error}")
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _attempt(
    containerd: Containerd, puller: Sequence[str], name: str, limit_seconds: float
) -> None:
    words = [*puller, name]
    node = containerd.node
    where = f"on {node.name}: " if node and node.remote else ""
    shown = f"{where}{shlex.join(words)}"
    try:
        done = subprocess.run(
            node.as_root(words) if node else words,
            input=containerd.input_head,
            capture_output=True,
            timeout=limit_seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise containerd.no_program() from error
    except subprocess.TimeoutExpired:
        raise ContainerdError(f"{shown}: no answer in {limit_seconds:.0f} s") from None
    if done.returncode:
        raise ContainerdError(f"{shown}: {failure_reason(done)}")
