"""The dependencies of the trainer as an image: from the cache, from a bundle, or from a build."""

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.image.builders import Build, build_layout, choose_builder
from infra.image.containerd import Containerd, ContainerdError
from infra.image.node_build import build_at, choose_builder_at
from infra.image.oci import Image, read_layout
from infra.image.plan import ImagePlan
from infra.image.platforms import architecture_of, platform_of_image

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """Where dependencies come from that containerd does not have.

    Args:
        project_root: the checkout.
        cache: keeps what was built, one folder per content and processor.
        builder: `auto`, `docker`, `podman` or `buildah`.
        build_on: `here`, or `node`: there, with its builder, and without the cache.
        bundled: folder of the dependencies' layout in a bundle; nothing is built then.
        authorities: certificates (PEM) that the build trusts beside the usual ones.
    """

    project_root: Path
    cache: Path
    builder: str
    build_on: str = "here"
    bundled: Path | None = None
    authorities: str = ""


def layout_folder(plan: ImagePlan, cache: Path, platform: str) -> Path:
    """Where the cache keeps the dependencies that were built for a platform."""
    return cache / "images" / f"deps-{plan.deps_hash}-{architecture_of(platform)}"


def dependencies_are_built(deps_hash: str, cache: Path) -> bool:
    """Whether the cache holds the dependencies of a plan for at least one kind of processor."""
    return any((cache / "images").glob(f"deps-{deps_hash}-*"))


def get_dependencies(
    plan: ImagePlan, sources: Sources, containerd: Containerd, platform: str, say: Say
) -> tuple[Image, bool]:
    """The dependencies for the node's platform, and whether they were built for this call.

    Raises:
        ContainerdError: containerd does not answer or refused.
        RuntimeError: the build failed, or the connection to the node.
        ValueError: they are for another platform, no builder works, there is no node to build on,
            or a layout is damaged.
    """
    image = containerd.complete_image(plan.deps_reference)
    if image and platform_of_image(image) == platform:
        return image, False
    if sources.build_on == "node" and not sources.bundled:
        return _build_at_node(plan, sources, containerd, platform, say), True
    return local_dependencies(plan, sources, platform, say)


def local_dependencies(
    plan: ImagePlan, sources: Sources, platform: str, say: Say
) -> tuple[Image, bool]:
    """The dependencies on this machine, of the bundle, the cache or a build that takes minutes.

    Returns:
        The image, and whether it was built for this call.

    Raises:
        RuntimeError: the build failed.
        ValueError: they are for another platform, no builder works, or a layout is damaged.
    """
    if sources.bundled:
        image = read_layout(sources.bundled)
        refuse_other_platform(
            image, platform, f"the bundle's {sources.bundled}", "pack the bundle on such a machine"
        )
        return image, False
    layout = layout_folder(plan, sources.cache, platform)
    built = not layout.exists()
    if built:
        build_into_cache(plan, sources, platform, say)
    image = read_cached(layout)
    refuse_other_platform(image, platform, str(layout), "remove that folder")
    return image, built


def read_cached(layout: Path) -> Image:
    """The dependencies in a folder of the cache.

    Raises:
        ValueError: it is damaged, as after a power cut; says what to do.
    """
    try:
        return read_layout(layout)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{layout} in the cache is damaged ({error}). Remove that folder, and run this again: "
            "then it is built anew"
        ) from error


def refuse_other_platform(image: Image, platform: str, what: str, way_out: str) -> None:
    """Check that an image runs on a platform.

    Args:
        image: its configuration names its own platform.
        platform: the node's.
        what: the image, for the error.
        way_out: what to do, for the error.

    Raises:
        ValueError: the image is for another platform; programs in it could not be started.
    """
    found = platform_of_image(image)
    if found != platform:
        raise ValueError(
            f"{what} is an image for {found}, but the node runs {platform}, where its programs "
            f'end with "exec format error"; {way_out}'
        )


def build_into_cache(plan: ImagePlan, sources: Sources, platform: str, say: Say) -> None:
    """Build the dependencies on this machine into their folder of the cache.

    Raises:
        RuntimeError: the build failed.
        ValueError: no builder works, or the base image is for another platform.
    """
    layout = layout_folder(plan, sources.cache, platform)
    chosen = choose_builder(sources.builder)
    say(f"image: building {plan.deps_reference} for {platform} with {chosen}; takes minutes, once")
    start = time.monotonic()
    layout.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=layout.parent, prefix="building-"))
    try:
        build_layout(chosen, _build(plan, sources, platform), sources.project_root, scratch / "new")
        built = read_layout(scratch / "new")
        refuse_other_platform(built, platform, f"what {chosen} built", _other_base(plan, platform))
        (scratch / "new").rename(layout)  # there is no half-built layout under its final name
    finally:
        shutil.rmtree(scratch)
    say(f"image: built in {time.monotonic() - start:.0f} s")


def _build_at_node(
    plan: ImagePlan, sources: Sources, containerd: Containerd, platform: str, say: Say
) -> Image:
    node = containerd.node
    if node is None:
        raise ValueError("imageBuildOn: 'node' needs a node; allowed here: here")
    chosen = choose_builder_at(node, sources.builder)
    say(f"image: building {plan.deps_reference} at the node with {chosen}; takes minutes, once")
    start = time.monotonic()
    build = _build(plan, sources, platform)
    build_at(node, chosen, build, sources.project_root, containerd.ctr_words())
    say(f"image: built and imported at the node in {time.monotonic() - start:.0f} s")
    image = containerd.complete_image(plan.deps_reference)
    if image is None:
        raise ContainerdError(f"after the build containerd does not hold {plan.deps_reference}")
    refuse_other_platform(image, platform, plan.deps_reference, _other_base(plan, platform))
    return image


def _build(plan: ImagePlan, sources: Sources, platform: str) -> Build:
    return Build(
        plan.deps_reference,
        plan.base_image,
        plan.torch_index_url,
        platform,
        sources.authorities,
        plan.context,
        plan.deps_hash,
    )


def _other_base(plan: ImagePlan, platform: str) -> str:
    if plan.context:
        return f"let the Dockerfile in {plan.context} begin with an image for {platform}"
    return f"set imageBase to one for {platform}: {plan.base_image} is not"


@contextmanager
def locked(plan: ImagePlan, cache: Path, place: str = "") -> Iterator[None]:
    """Two runs do not build the same, nor move the same gigabytes to a place, at the same time.

    Args:
        plan: the image.
        cache: folder of the locks' files.
        place: where the image is moved to; empty: it is built.
    """
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    end = f"-to-{hashlib.sha256(place.encode()).hexdigest()[:16]}" if place else ""
    with (folder / f"deps-{plan.deps_hash}{end}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
