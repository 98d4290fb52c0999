"""`python -m infra.imaging ensure|check|remove`: the trainer image, from source to containerd."""

import argparse
import fcntl
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.imaging.builders import Build, build_layout, choose_builder, stage_context
from infra.imaging.containerd import Containerd, ImportProblemError, find_problem
from infra.imaging.oci import Image, append_layer, code_layer, read_layout
from infra.imaging.plan import ImagePlan, code_files, plan_image

PROJECT = Path(__file__).parent.parent.parent


def main() -> int:
    """Run one command; exit status 1 with one clear line when it cannot be done."""
    arguments = _parser().parse_args()
    plan = plan_image(
        PROJECT, arguments.repository, arguments.base_image, arguments.torch_index_url or None
    )
    containerd = Containerd(shlex.split(arguments.ctr), arguments.address or None)
    try:
        return {"ensure": _ensure, "check": _check, "remove": _remove}[arguments.action](
            plan, containerd, arguments
        )
    except (ImportProblemError, RuntimeError, ValueError, OSError) as error:
        _say(f"image: {error}")
        return 1


def _ensure(plan: ImagePlan, containerd: Containerd, arguments: argparse.Namespace) -> int:
    layout = _deps_layout(plan, arguments)
    deps = read_layout(layout)
    image = _with_code(deps)
    problem = find_problem(containerd, plan.reference, image.manifest.digest)
    moved = 0
    if problem:
        _say(f"import: {problem}")
        start = time.monotonic()
        moved = containerd.import_images({plan.deps_reference: deps, plan.reference: image})
        _say(f"import: {moved} bytes in {time.monotonic() - start:.1f} s")
        if left := find_problem(containerd, plan.reference, image.manifest.digest):
            raise ImportProblemError(f"after the import: {left}")
    result = {
        "image": plan.reference,
        "digest": image.manifest.digest,
        "imported_bytes": moved,
    }
    _say(json.dumps(result))
    return 0


def _check(plan: ImagePlan, containerd: Containerd, arguments: argparse.Namespace) -> int:
    layout = _layout_path(plan, arguments)
    if not layout.exists():
        raise RuntimeError(f"{plan.deps_reference} was not built on this machine")
    digest = _with_code(read_layout(layout)).manifest.digest
    problem = find_problem(containerd, plan.reference, digest)
    _say(problem or f"{plan.reference} is there: {digest}")
    return 1 if problem else 0


def _remove(plan: ImagePlan, containerd: Containerd, arguments: argparse.Namespace) -> int:
    """Remove the names of this stack's image; a containerd that is gone has nothing to remove."""
    names = arguments.reference or [plan.reference, plan.deps_reference]
    try:
        containerd.remove_images(names)
    except ImportProblemError as error:
        _say(f"image: not removed, containerd does not answer: {error}")
    return 0


def _with_code(deps: Image) -> Image:
    return append_layer(deps, code_layer(code_files(PROJECT)), "disttrain: trainer code")


def _layout_path(plan: ImagePlan, arguments: argparse.Namespace) -> Path:
    return Path(arguments.cache) / "images" / f"deps-{plan.deps_hash}"


def _deps_layout(plan: ImagePlan, arguments: argparse.Namespace) -> Path:
    """The OCI layout of the dependencies, built if the cache has none."""
    layout = _layout_path(plan, arguments)
    with _locked(layout.with_suffix(".lock")):
        if layout.exists():
            return layout
        builder = choose_builder(arguments.builder)
        start = time.monotonic()
        _say(f"build: {plan.deps_reference} with {builder} (minutes, once)")
        scratch = Path(tempfile.mkdtemp(dir=layout.parent, prefix=".building-"))
        try:
            context = scratch / "context"
            stage_context(PROJECT, context)
            build = Build(
                context,
                plan.deps_reference,
                arguments.base_image,
                arguments.torch_index_url or None,
            )
            build_layout(builder, build, scratch / "layout")
            (scratch / "layout").rename(layout)
        finally:
            shutil.rmtree(scratch)
        _say(f"build: {time.monotonic() - start:.0f} s")
    return layout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.imaging", description=__doc__)
    parser.add_argument("action", choices=("ensure", "check", "remove"))
    parser.add_argument("--repository", required=True, help="image name without tag")
    parser.add_argument("--base-image", required=True, help="what FROM names")
    parser.add_argument("--torch-index-url", default="", help="extra package index")
    parser.add_argument("--builder", default="auto", help="auto, docker, podman or buildah")
    parser.add_argument("--ctr", default="ctr", help="command that runs ctr, such as 'k3s ctr'")
    parser.add_argument("--address", default="", help="containerd's socket, where not the default")
    parser.add_argument("--reference", action="append", help="remove: exactly these names")
    default_cache = os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain"
    parser.add_argument("--cache", default=str(default_cache), help="folder for built layouts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
