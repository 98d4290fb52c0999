"""`python -m infra.imaging ACTION`: the trainer image, from source to containerd."""

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from infra.command_line import cache_folder, short_lines
from infra.imaging import presence
from infra.imaging.builders import BUILDERS
from infra.imaging.containerd import Containerd, ContainerdError
from infra.imaging.ensure import ensure, image_to_read, problems
from infra.imaging.plan import ImagePlan, check_repository, plan_image
from infra.imaging.reach import VARIABLE, reached
from infra.imaging.sbom import sbom

PROJECT = Path(__file__).parent.parent.parent


def main(argv: list[str] | None = None) -> int:
    """Run one action; the exit status is 0 when it was done."""
    arguments = _parser().parse_args(argv)
    try:
        with reached(os.environ.get(VARIABLE)) as node:
            containerd = Containerd(
                shlex.split(arguments.ctr), arguments.address or None, node=node
            )
            return ACTIONS[arguments.action](arguments, containerd)
    except (RuntimeError, ValueError, OSError) as error:
        _say(f"image: {error}")
        return 1


def _ensure(arguments: argparse.Namespace, containerd: Containerd) -> int:
    result = ensure(
        _plan(arguments),
        containerd,
        PROJECT,
        Path(arguments.cache),
        arguments.builder,
        _say,
        os.environ.get(presence.VARIABLE, ""),
        arguments.build_on,
        bundled=Path(arguments.layout) if arguments.layout else None,
    )
    print(json.dumps(asdict(result)), flush=True)
    return 0


def _check(arguments: argparse.Namespace, containerd: Containerd) -> int:
    plan = _plan(arguments)
    found = problems(plan, containerd)
    for problem in found:
        _say(f"image: {problem}")
    print(json.dumps({"image": plan.reference, "problems": len(found)}), flush=True)
    return 1 if found else 0


def _remove(arguments: argparse.Namespace, containerd: Containerd) -> int:
    """Remove the names of our images; a containerd that is gone holds none."""
    check_repository(arguments.repository)
    try:
        there = containerd.images()
    except ContainerdError as error:
        _say(f"image: nothing to remove, containerd does not answer: {error}")
        there = {}
    ours = (arguments.repository, f"{arguments.repository}-deps")
    names = arguments.reference or [name for name in there if name.rpartition(":")[0] in ours]
    removed = containerd.remove_images(names) if there else []
    print(json.dumps({"removed": len(removed)}), flush=True)
    return 0


def _sbom(arguments: argparse.Namespace, containerd: Containerd) -> int:
    """Write what the image holds; containerd gives the layers that were not built here."""
    plan = _plan(arguments)
    image = image_to_read(plan, Path(arguments.cache), containerd)
    document = sbom(plan.reference, image, containerd.content)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        Path(arguments.output).write_text(text)
        packages = len(document["components"])
        print(json.dumps({"image": plan.reference, "components": packages}), flush=True)
    return 0


ACTIONS = {"ensure": _ensure, "check": _check, "remove": _remove, "sbom": _sbom}


def _plan(arguments: argparse.Namespace) -> ImagePlan:
    return plan_image(
        PROJECT, arguments.repository, arguments.base_image, arguments.torch_index_url
    )


def _say(text: str) -> None:
    for line in short_lines(text):
        print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.imaging", description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    add = parser.add_argument
    add("--repository", required=True, help="image name without tag")
    add(
        "--base-image",
        default="docker.io/library/python:3.11-slim-bookworm",
        help="what FROM names (default: %(default)s)",
    )
    add("--torch-index-url", help="further package index for torch (default: none)")
    add("--builder", default="auto", help=f"auto, {', '.join(BUILDERS)} (default: %(default)s)")
    add("--build-on", choices=("here", "node"), default="here", help="(default: %(default)s)")
    add("--ctr", default="ctr", help="the command that runs ctr, such as 'k3s ctr'")
    add("--address", help="containerd's socket (default: ctr's own)")
    add(
        "--cache", default=str(cache_folder()), help="for built dependencies (default: %(default)s)"
    )
    add("--layout", help="the dependencies as an OCI layout, of a bundle; nothing is built")
    add("--reference", action="append", help="remove: only this name; may be given again")
    add("--output", default="-", help="sbom: file for the document (default: standard output)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
