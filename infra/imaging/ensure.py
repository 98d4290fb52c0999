"""Brings the trainer image to containerd: nothing if it is there, else the blobs it lacks."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.imaging.builders import Build, build_layout, choose_builder
from infra.imaging.containerd import Containerd, ContainerdError, misplaced
from infra.imaging.node_build import build_at, choose_at
from infra.imaging.oci import (
    ANNOTATION,
    Image,
    append_layer,
    blob,
    image_annotations,
    read_layout,
)
from infra.imaging.plan import ImagePlan

CREATED_BY = "disttrain: trainer code"
Say = Callable[[str], None]


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
    project_root: Path,
    cache: Path,
    builder: str,
    say: Say,
    wanted_at: str = "",
    build_on: str = "here",
    bundled: Path | None = None,
) -> Ensured:
    """Have the planned image in containerd, complete and under its name.

    The dependencies come from the first that has them: containerd, the cache, a build.

    Args:
        cache: keeps the built dependencies, one folder per content.
        builder: `auto`, `docker`, `podman` or `buildah`.
        say: takes a line of progress.
        wanted_at: left on the image as a label (presence.py); empty: none.
        build_on: `here`, or `node`: there, with its builder, and without the cache.
        bundled: the dependencies' layout in a bundle; nothing is built then.

    Raises:
        ContainerdError: containerd does not answer, refused, or does not hold the image after.
        RuntimeError: the build failed, or the connection to the node.
        ValueError: no builder works, no node to build on, or the cache's layout is damaged.
    """
    layout = _layout(plan, cache)
    with _locked(layout.parent, f"deps-{plan.deps_hash}"):
        if there := image_there(plan, containerd):
            if wanted_at:
                containerd.mark_wanted(plan.reference, wanted_at)
            return Ensured(plan.reference, there.manifest.digest, 0, built=False)
        for problem in problems(plan, containerd):
            say(f"image: {problem}")
        built = False
        deps = containerd.complete_image(plan.deps_reference)
        if deps is None and bundled:
            deps = read_layout(bundled)
        elif deps is None and build_on == "node":
            deps = _build_at_node(plan, containerd, project_root, builder, say)
            built = True
        elif deps is None:
            if not layout.exists():
                _build(plan, project_root, layout, builder, say)
                built = True
            deps = read_layout(layout)
        image = _with_code(plan, deps)
        start = time.monotonic()
        # both names, so that the large layers are kept while only the code changes
        moved = containerd.import_images({plan.deps_reference: deps, plan.reference: image}, say)
        say(f"image: {moved} bytes imported in {time.monotonic() - start:.1f} s")
        there = containerd.complete_image(plan.reference)
        if there is None or there.manifest.digest != image.manifest.digest:
            raise ContainerdError(
                f"after the import containerd's namespace {containerd.namespace!r} does not hold "
                f"{plan.reference} with digest {image.manifest.digest}"
            )
        if wanted_at:
            containerd.mark_wanted(plan.reference, wanted_at)
        return Ensured(plan.reference, image.manifest.digest, moved, built)


def cached_layout(plan: ImagePlan, project_root: Path, cache: Path, builder: str, say: Say) -> Path:
    """The dependencies' OCI layout in the cache, built if it is not there.

    Raises:
        RuntimeError, ValueError: as `ensure`.
    """
    layout = _layout(plan, cache)
    with _locked(layout.parent, f"deps-{plan.deps_hash}"):
        if not layout.exists():
            _build(plan, project_root, layout, builder, say)
    return layout


def image_to_read(plan: ImagePlan, cache: Path, containerd: Containerd) -> Image:
    """The planned image, with its layers on this machine if they were built here.

    Raises:
        ValueError: it is neither in the cache nor in containerd, or the layout is damaged.
        ContainerdError: containerd does not answer.
    """
    layout = _layout(plan, cache)
    if layout.exists():
        return _with_code(plan, read_layout(layout))
    there = image_there(plan, containerd)
    if there is None:
        raise ValueError(f"{plan.reference} is neither in containerd nor in {cache}")
    return there


def _layout(plan: ImagePlan, cache: Path) -> Path:
    return cache / "images" / f"deps-{plan.deps_hash}"


def _with_code(plan: ImagePlan, deps: Image) -> Image:
    return append_layer(deps, plan.code_layer, CREATED_BY, annotations(plan, deps))


def annotations(plan: ImagePlan, deps: Image) -> dict[str, str]:
    """What tells an image's origin to tools; `deps` names its base's digest if the builder did."""
    name, _, digest = plan.base_image.partition("@")
    digest = digest or image_annotations(deps).get(f"{ANNOTATION}.base.digest", "")
    return {
        f"{ANNOTATION}.title": "disttrain trainer",
        f"{ANNOTATION}.version": plan.reference.rpartition(":")[2],
        f"{ANNOTATION}.revision": plan.code_hash,
        f"{ANNOTATION}.base.name": name,
        **({f"{ANNOTATION}.base.digest": digest} if digest else {}),
    }


def image_there(plan: ImagePlan, containerd: Containerd) -> Image | None:
    """The planned image, if containerd holds all of it: under its name, with this code on top."""
    image = containerd.complete_image(plan.reference)
    if image and image.layers[-1].digest == blob(plan.code_layer).digest:
        return image
    return None


def problems(plan: ImagePlan, containerd: Containerd) -> list[str]:
    """Why pods would not find the planned image; empty: they would."""
    if image_there(plan, containerd):
        return []
    if plan.reference in containerd.images():
        first = f"{plan.reference} is there, but incomplete or with other content"
    else:
        first = f"{plan.reference} is not in containerd's namespace {containerd.namespace!r}"
    return [first, *misplaced(containerd, plan.reference)]


def _build(plan: ImagePlan, project_root: Path, layout: Path, builder: str, say: Say) -> None:
    chosen = choose_builder(builder)
    say(f"image: building {plan.deps_reference} with {chosen}; takes minutes, once")
    start = time.monotonic()
    scratch = Path(tempfile.mkdtemp(dir=layout.parent, prefix="building-"))
    try:
        build_layout(chosen, _build_of(plan), project_root, scratch / "layout")
        read_layout(scratch / "layout")
        (scratch / "layout").rename(layout)  # there is no half-built layout under its final name
    finally:
        shutil.rmtree(scratch)
    say(f"image: built in {time.monotonic() - start:.0f} s")


def _build_at_node(
    plan: ImagePlan, containerd: Containerd, project_root: Path, builder: str, say: Say
) -> Image:
    node = containerd.node
    if node is None:
        raise ValueError("imageBuildOn: 'node' needs a node; allowed here: here")
    chosen = choose_at(node, builder)
    say(f"image: building {plan.deps_reference} at the node with {chosen}; takes minutes, once")
    start = time.monotonic()
    build_at(node, chosen, _build_of(plan), project_root, containerd.ctr_words())
    say(f"image: built and imported at the node in {time.monotonic() - start:.0f} s")
    deps = containerd.complete_image(plan.deps_reference)
    if deps is None:
        raise ContainerdError(f"after the build containerd does not hold {plan.deps_reference}")
    return deps


def _build_of(plan: ImagePlan) -> Build:
    return Build(plan.deps_reference, plan.base_image, plan.torch_index_url)


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Two runs do not build the same, nor move the same gigabytes, at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
