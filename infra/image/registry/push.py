"""Brings the trainer image to a registry: nothing if it is there, else the blobs it lacks."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.image import presence
from infra.image.dependencies import Sources, local_dependencies, locked
from infra.image.oci import Image, image_annotations
from infra.image.plan import ImagePlan
from infra.image.platforms import architecture_of, platform_of_image, this_machine
from infra.image.registry.compress import compressed
from infra.image.registry.repository import Repository
from infra.image.with_code import with_code

REQUEST_ANNOTATION = "disttrain.dev/import-request"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Pushed:
    """What `push` left in the registry."""

    image: str
    digest: str
    pushed_bytes: int
    built: bool


def tag_of(plan: ImagePlan) -> str:
    """The tag of the planned image."""
    return plan.reference.rpartition(":")[2]


def deps_tag(plan: ImagePlan, platform: str) -> str:
    """The tag of the dependencies alone.

    They lie in the same repository, so that a registry which wants repositories to be made first
    needs one, and the image's layers are there once.
    """
    return f"deps-{plan.deps_hash}-{architecture_of(platform)}"


def push(
    plan: ImagePlan,
    repository: Repository,
    sources: Sources,
    say: Say,
    *,
    request: str = "",
    compress: bool = True,
) -> Pushed:
    """Have the planned image in the registry, complete, for processors of this machine's kind.

    Dependencies that the registry has are neither built nor sent, so a change of the trainer's
    code moves kilobytes, from any machine.

    Args:
        plan: the image.
        repository: where it goes.
        sources: where dependencies come from that the registry does not have.
        say: takes a line of progress.
        request: left on the image as an annotation (presence.py); empty: none.
        compress: whether layers are compressed, which makes them about 40 % smaller.

    Raises:
        RegistryError: the registry cannot be reached, refuses, or does not hold the image after.
        RuntimeError: the build failed.
        ValueError: the image there is for other processors, no builder works, or a layout is
            damaged.
    """
    platform = this_machine()
    there = _whole_image(repository, tag_of(plan))
    if there is not None:
        _refuse_other_platform(plan, there, platform)
        presence.forget(sources.cache, noted(there))
        return Pushed(plan.reference, there.manifest.digest, 0, built=False)
    with locked(plan, sources.cache):
        start = time.monotonic()
        deps, deps_bytes, built = _have_dependencies(
            plan, repository, sources, platform, say, compress=compress
        )
        note = {REQUEST_ANNOTATION: request} if request else {}
        image = with_code(plan, deps, note, compress=compress)
        sent = deps_bytes + _push_missing(repository, image, say)
        repository.push_image(tag_of(plan), image)
        say(f"image: {sent / 1e6:,.1f} MB pushed in {time.monotonic() - start:.1f} s")
        presence.forget(sources.cache, request)
    return Pushed(plan.reference, image.manifest.digest, sent, built)


def noted(image: Image) -> str:
    """The request under which an image was pushed; empty: it has none."""
    return image_annotations(image).get(REQUEST_ANNOTATION, "")


def _have_dependencies(
    plan: ImagePlan,
    repository: Repository,
    sources: Sources,
    platform: str,
    say: Say,
    *,
    compress: bool,
) -> tuple[Image, int, bool]:
    """The dependencies in the registry, the bytes that were sent, and whether they were built."""
    tag = deps_tag(plan, platform)
    if found := _whole_image(repository, tag):
        return found, 0, False
    image, built = local_dependencies(plan, sources, platform, say)
    folder = sources.cache / "images"
    with tempfile.TemporaryDirectory(dir=folder, prefix="compressing-") as scratch:
        if compress:
            say("image: compressing the dependencies")
            image = compressed(image, Path(scratch))
        sent = _push_missing(repository, image, say)
        repository.push_image(tag, image)
    return image, sent, built


def _whole_image(repository: Repository, tag: str) -> Image | None:
    """The image under a tag; None if there is none, or if a layer of it is gone."""
    image = repository.image(tag)
    if image is None or any(repository.lacks(layer.digest) for layer in image.layers):
        return None
    return image


def _push_missing(repository: Repository, image: Image, say: Say) -> int:
    """Send the blobs that are missing, the largest last, and give the number of their bytes."""
    sent = 0
    for part in sorted({b.digest: b for b in image.blobs[1:]}.values(), key=lambda b: b.size_bytes):
        if repository.lacks(part.digest):
            repository.push_blob(part, say)
            sent += part.size_bytes
    return sent


def _refuse_other_platform(plan: ImagePlan, there: Image, platform: str) -> None:
    found = platform_of_image(there)
    if found != platform:
        raise ValueError(
            f"imageRepository: {plan.repository!r}: it holds {tag_of(plan)} for {found}, and this "
            f"machine would make it for {platform}; set another repository for these processors"
        )
