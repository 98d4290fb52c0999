"""Brings the trainer image to containerd. Only the blobs that containerd lacks are sent."""

import time
from dataclasses import dataclass
from pathlib import Path

from infra.image import presence
from infra.image.containerd import REQUEST_LABEL, Containerd, ContainerdError
from infra.image.dependencies import (
    Say,
    Sources,
    build_into_cache,
    get_dependencies,
    layout_folder,
    locked,
    read_cached,
)
from infra.image.oci import Image, blob
from infra.image.plan import ImagePlan
from infra.image.platforms import platform_of_image, this_machine
from infra.image.prune import KEEP_UNUSED_MINUTES, ensured_label, prune
from infra.image.transfer import import_images, in_spite_of_a_restart
from infra.image.wanted import NO_PLATFORM, Platform, want
from infra.image.with_code import with_code


@dataclass(frozen=True)
class Ensured:
    """What `ensure` left in containerd."""

    image: str
    digest: str
    imported_bytes: int
    built: bool


def ensure(
    plan: ImagePlan,
    containerd: Containerd,
    sources: Sources,
    say: Say,
    request: str = "",
    keep_unused_minutes: int = KEEP_UNUSED_MINUTES,
    wanted_by: Platform = NO_PLATFORM,
) -> Ensured:
    """Have the planned image in containerd, complete, under its name, and for its platform.

    Afterwards older tags of the repository that no container and no platform needs are removed.

    Args:
        plan: the image.
        containerd: the node's containerd.
        sources: where dependencies come from if containerd does not have them.
        say: takes a line of progress.
        request: the import request, which becomes a label of the image (presence.py); empty: none.
        keep_unused_minutes: older tags that were asked for within this time are not removed.
        wanted_by: the platform that wants the image.

    Raises:
        ContainerdError: containerd does not answer, refused, or does not hold the image afterwards.
        RuntimeError: the build failed, or the connection to the node broke.
        ValueError: the image is for another platform, no builder works, there is no node to build
            on, or a layout is damaged.
    """

    def bring() -> Ensured:
        platform = containerd.platform() or this_machine()
        there = find_complete_image(plan, containerd, platform)
        if there:
            done = Ensured(plan.reference, there.manifest.digest, 0, built=False)
        else:
            done = _import(plan, containerd, sources, platform, say)
        label = {REQUEST_LABEL: request} if request else {}
        containerd.set_labels(plan.reference, {**ensured_label(), **label})
        presence.forget(sources.cache, request)
        want(containerd, plan, wanted_by)
        prune(plan, containerd, say, keep_unused_minutes)
        return done

    with locked(plan, sources.cache, say, containerd.location):
        return in_spite_of_a_restart(containerd, say, bring)


def _import(
    plan: ImagePlan, containerd: Containerd, sources: Sources, platform: str, say: Say
) -> Ensured:
    for problem in problems(plan, containerd):
        say(f"image: {problem}")
    # This lock is not held while blobs are moved, so that other nodes can get theirs.
    with locked(plan, sources.cache, say):
        deps, built = get_dependencies(plan, sources, containerd, platform, say)
    image = with_code(plan, deps)
    start = time.monotonic()
    # Both names are imported, so that the large layers are kept when only the code changes.
    images = {plan.deps_reference: deps, plan.reference: image}
    moved = import_images(containerd, images, say, ensured_label())
    say(f"image: {moved / 1e6:,.1f} MB imported in {time.monotonic() - start:.1f} s")
    there = containerd.complete_image(plan.reference)
    if there is None or there.manifest.digest != image.manifest.digest:
        raise ContainerdError(
            f"after the import containerd's namespace {containerd.namespace!r} does not hold "
            f"{plan.reference} with digest {image.manifest.digest}"
        )
    return Ensured(plan.reference, image.manifest.digest, moved, built)


def cached_layout(plan: ImagePlan, sources: Sources, say: Say) -> Path:
    """Return the folder in the cache with the dependencies for this machine's platform.

    They are built if they are not there.

    Raises:
        RuntimeError, ValueError: as for `ensure`, or the layout is damaged.
    """
    layout = layout_folder(plan, sources.cache, this_machine())
    with locked(plan, sources.cache, say):
        if not layout.exists():
            build_into_cache(plan, sources, this_machine(), say)
        read_cached(layout)  # Find damage now, and not where the bundle is used, without a network.
    return layout


def image_to_read(plan: ImagePlan, cache: Path, containerd: Containerd) -> Image:
    """Return the planned image, with its layers' content if they were built on this machine.

    Raises:
        ValueError: it is neither in the cache nor in containerd, or the layout is damaged.
        ContainerdError: containerd does not answer.
    """
    layout = layout_folder(plan, cache, this_machine())
    if layout.exists():
        return with_code(plan, read_cached(layout))
    there = find_complete_image(plan, containerd)
    if there is None:
        raise ValueError(f"{plan.reference} is neither in containerd nor in {cache}")
    return there


def find_complete_image(
    plan: ImagePlan, containerd: Containerd, platform: str = ""
) -> Image | None:
    """Return the planned image if containerd holds all of it; otherwise None.

    It must have the planned name, and the planned code as its last layer.

    Args:
        plan: the image.
        containerd: the node's containerd.
        platform: the platform that the image must have; empty: any.
    """
    image = containerd.complete_image(plan.reference)
    if image is None or image.layers[-1].digest != blob(plan.code_layer).digest:
        return None
    return image if not platform or platform_of_image(image) == platform else None


def problems(plan: ImagePlan, containerd: Containerd) -> list[str]:
    """Why pods would not find the planned image, or could not run it; empty if they can."""
    platform = containerd.platform() or ""
    if find_complete_image(plan, containerd, platform):
        return []
    if found := find_complete_image(plan, containerd):
        return [f"{plan.reference} is for {platform_of_image(found)}, but the node runs {platform}"]
    if plan.reference in containerd.images():
        first = f"{plan.reference} is there, but incomplete or with other content"
    else:
        first = f"{plan.reference} is not in containerd's namespace {containerd.namespace!r}"
    return [first, *misplaced(containerd, plan.reference)]


def misplaced(containerd: Containerd, reference: str) -> list[str]:
    """Find the image where the kubelet does not look: under another name or in another namespace.

    Names are compared by their tag, which is a hash of the content.
    """
    tag = f":{reference.rpartition(':')[2]}"
    found = [
        f"the image is there as {name}, but pods ask for {reference}"
        for name in sorted(containerd.images())
        if name.endswith(tag) and name != reference
    ]
    for namespace in sorted(set(containerd.namespaces()) - {containerd.namespace}):
        found += [
            f"{name} is in containerd's namespace {namespace!r}, "
            f"but the kubelet looks only in {containerd.namespace!r}"
            for name in sorted(containerd.images(namespace))
            if name.endswith(tag)
        ]
    return found
