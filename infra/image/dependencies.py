"""Gets the image of the trainer's dependencies: from the cache, from a bundle, or by a build."""

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.command_line import Say
from infra.image.builders import Build, build_layout, choose_builder
from infra.image.containerd import Containerd, ContainerdError
from infra.image.node_build import build_at, choose_builder_at
from infra.image.oci import Image, read_layout
from infra.image.plan import ImagePlan
from infra.image.platforms import architecture_of, platform_of_image


@dataclass(frozen=True)
class Sources:
    """Where dependencies come from if containerd does not have them.

    Args:
        project_root: folder of the checkout.
        cache: folder that keeps what was built, one folder for each content and processor.
        builder: `auto`, `docker`, `podman` or `buildah`.
        build_on: `here`, or `node` to build at the node with its builder and without the cache.
        bundled: folder of the dependencies' layout in a bundle; with it, nothing is built.
        authorities: certificates (PEM) that the build trusts in addition to the usual ones.
    """

    project_root: Path
    cache: Path
    builder: str
    build_on: str = "here"
    bundled: Path | None = None
    authorities: str = ""


def layout_folder(plan: ImagePlan, cache: Path, platform: str) -> Path:
    """Return the cache's folder for the dependencies that were built for a platform."""
    return cache / "images" / f"deps-{plan.deps_hash}-{architecture_of(platform)}"


def dependencies_are_built(deps_hash: str, cache: Path) -> bool:
    """Whether the cache holds the dependencies of a plan for at least one kind of processor."""
    return any((cache / "images").glob(f"deps-{deps_hash}-*"))


def get_dependencies(
    plan: ImagePlan, sources: Sources, containerd: Containerd, platform: str, say: Say
) -> tuple[Image, bool]:
    """Return the dependencies for the node's platform, and whether this call has built them.

    Raises:
        ContainerdError: containerd does not answer, or refused.
        RuntimeError: the build failed, or the connection to the node broke.
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
    """Return the dependencies on this machine: from the bundle, the cache, or a build.

    A build takes minutes.

    Returns:
        The image, and whether this call has built it.

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
    """Return the dependencies in a folder of the cache.

    Raises:
        ValueError: the folder is damaged, for example after a power cut. The text says what to do.
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
        image: the image, whose configuration names its platform.
        platform: the platform of the node.
        what: description of the image, for the error.
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

    The lock for building the image must be held (`locked`).

    Raises:
        RuntimeError: the build failed.
        ValueError: no builder works, or the base image is for another platform.
    """
    layout = layout_folder(plan, sources.cache, platform)
    chosen = choose_builder(sources.builder)
    say(f"image: building {plan.deps_reference} for {platform} with {chosen}; takes minutes, once")
    start = time.monotonic()
    layout.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(plan, sources.cache, "building") as scratch:
        build_layout(chosen, _build(plan, sources, platform), sources.project_root, scratch / "new")
        built = read_layout(scratch / "new")
        refuse_other_platform(built, platform, f"what {chosen} built", _other_base(plan, platform))
        (scratch / "new").rename(layout)  # so that the final name never has a half-built layout
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
def locked(plan: ImagePlan, cache: Path, say: Say, target: str = "") -> Iterator[None]:
    """Hold a lock, so that two processes do not build or move the same image at the same time.

    Args:
        plan: the image.
        cache: folder that holds the lock's file, in `images`.
        say: takes a line of progress.
        target: the containerd to which the image is moved; empty: the lock is for building it.
    """
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    end = f"-to-{hashlib.sha256(target.encode()).hexdigest()[:16]}" if target else ""
    with _lock_file(folder, f"{plan.deps_hash}{end}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("image: another process is at work on this image; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_folder(plan: ImagePlan, cache: Path, purpose: str) -> Iterator[Path]:
    """Give a folder in the cache that is removed at the end. The lock must be held (`locked`).

    The folders of earlier processes that were killed are removed first. They have gigabytes, and
    may have the login of a package index.

    Args:
        plan: the image.
        cache: folder in which the new one is made, in `images`.
        purpose: the first word of the folder's name.
    """
    folder, prefix = cache / "images", f"{purpose}-{plan.deps_hash}-"
    for left in folder.glob(f"{purpose}-*-*"):
        if left.name.startswith(prefix) or not _is_at_work(folder, left.name.split("-")[1]):
            shutil.rmtree(left, ignore_errors=True)  # A builder may still write into it.
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as made:
        yield Path(made)


def _lock_file(folder: Path, name: str) -> Path:
    return folder / f"deps-{name}.lock"


def _is_at_work(folder: Path, deps_hash: str) -> bool:
    """Whether a process holds the lock for building the image with this hash (`locked`)."""
    try:
        with _lock_file(folder, deps_hash).open("r+") as file:  # NFS locks only such a file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass  # It has never been held.
    return False
