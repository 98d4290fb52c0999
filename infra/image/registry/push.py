"""Brings the trainer image to a registry. Only the blobs that the registry lacks are sent."""

import time
from dataclasses import dataclass

from infra.command_line import Say
from infra.image import presence
from infra.image.dependencies import Sources, local_dependencies, locked, scratch_folder
from infra.image.oci import Image, image_annotations
from infra.image.plan import ImagePlan
from infra.image.platforms import architecture_of, platform_of_image, this_machine
from infra.image.registry.compress import compressed
from infra.image.registry.repository import Repository
from infra.image.with_code import with_code

REQUEST_ANNOTATION = "disttrain.dev/import-request"


@dataclass(frozen=True)
class Pushed:
    """What `push` left in the registry."""

    image: str
    digest: str
    pushed_bytes: int
    built: bool


def tag_of(plan: ImagePlan) -> str:
    """Return the tag of the planned image."""
    return plan.reference.rpartition(":")[2]


def deps_tag(plan: ImagePlan, platform: str) -> str:
    """Return the tag of the dependencies alone.

    They are in the same repository as the image. So only one repository is needed in a registry
    where repositories must be made first, and the layers are stored only once.
    """
    return f"deps-{plan.deps_hash}-{architecture_of(platform)}"


def push(
    plan: ImagePlan,
    repository: Repository,
    sources: Sources,
    say: Say,
    *,
    request: str = "",
    compress: bool,
) -> Pushed:
    """Have the planned image in the registry, complete, and for processors of this machine's kind.

    Dependencies that the registry has are neither built nor sent. So after a change of the
    trainer's code only kilobytes are sent, from any machine.

    Args:
        plan: the image.
        repository: the repository that gets the image.
        sources: where dependencies come from if the registry does not have them.
        say: takes a line of progress.
        request: the import request, which becomes an annotation of the image (presence.py); empty:
            none.
        compress: whether layers are compressed, which makes them about 40 % smaller.

    Raises:
        RegistryError: the registry cannot be reached, refuses, holds the image for other
            processors, or does not hold the image afterwards.
        RuntimeError: the build failed.
        ValueError: no builder works, or a layout is damaged.
    """
    platform = this_machine()
    there = _whole_image(repository, tag_of(plan))
    if there is not None:
        _refuse_other_platform(plan, repository, there, platform)
        presence.forget(sources.cache, noted(there))
        return Pushed(plan.reference, there.manifest.digest, 0, built=False)
    with locked(plan, sources.cache, say):
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
    """Return the import request with which an image was pushed; empty if it has none."""
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
    """Have the dependencies in the registry.

    Returns:
        The dependencies, the number of bytes that were sent, and whether they were built.
    """
    tag = deps_tag(plan, platform)
    if found := _whole_image(repository, tag):
        return found, 0, False
    image, built = local_dependencies(plan, sources, platform, say)
    with scratch_folder(plan, sources.cache, "compressing") as scratch:
        if compress:
            say("image: compressing the dependencies")
            image = compressed(image, scratch)
        sent = _push_missing(repository, image, say)
        repository.push_image(tag, image)
    return image, sent, built


def _whole_image(repository: Repository, tag: str) -> Image | None:
    """Return the image with a tag; None if there is none, or if one of its layers is missing."""
    image = repository.image(tag)
    if image is None or any(repository.lacks(layer.digest) for layer in image.layers):
        return None
    return image


def _push_missing(repository: Repository, image: Image, say: Say) -> int:
    """Send the missing blobs, the largest last, and return the number of bytes that were sent."""
    sent = 0
    for part in sorted({b.digest: b for b in image.blobs[1:]}.values(), key=lambda b: b.size_bytes):
        if repository.lacks(part.digest):
            repository.push_blob(part, say)
            sent += part.size_bytes
    return sent


def _refuse_other_platform(
    plan: ImagePlan, repository: Repository, there: Image, platform: str
) -> None:
    found = platform_of_image(there)
    if found != platform:
        raise repository.error(
            f"it holds {tag_of(plan)} for {found}, and this machine would make it for {platform}; "
            "set another repository for these processors"
        )
