"""`python3 -m infra.image ACTION` builds the trainer image and brings it to nodes or a registry."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from infra.command_line import cache_folder, short_lines
from infra.image import plan as planning
from infra.image import pods_images, presence, wanted
from infra.image.builders import BUILDERS
from infra.image.containerd import Containerd, ContainerdError
from infra.image.dependencies import Sources
from infra.image.ensure import ensure, image_to_read, problems
from infra.image.plan import (
    ImagePlan,
    changes_since,
    check_repository,
    deps_repository,
    plan_image,
)
from infra.image.pods_images import images_of_pods
from infra.image.program_plan import plan_program_image, program_repository
from infra.image.prune import KEEP_UNUSED_MINUTES
from infra.image.pull import DIGEST_VARIABLE, Pull, pull
from infra.image.reach import open_node
from infra.image.registry.login import PASSWORD_VARIABLE, Login, find_login
from infra.image.sbom import sbom
from infra.image.sharing import by_digest, share
from infra.node.node_variable import VARIABLE

PROJECT = Path(__file__).parent.parent.parent


def main(argv: list[str] | None = None) -> int:
    """Run one action, and return the exit status, which is 0 if the action was done."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.action == "push":
            return _push(arguments)
        # Removed, so that builders and other programs do not get the key and the password in it.
        with open_node(os.environ.pop(VARIABLE, None)) as node:
            containerd = Containerd(
                shlex.split(arguments.ctr), arguments.address or None, node=node
            )
            return ACTIONS[arguments.action](arguments, containerd)
    except (RuntimeError, ValueError, OSError) as error:
        _say(f"image: {error}")
        return 1


def _ensure(arguments: argparse.Namespace, containerd: Containerd) -> int:
    plan = _plan(arguments)
    _refuse_other_plan(os.environ.get(planning.VARIABLE, ""), plan)
    result = ensure(
        plan,
        containerd,
        _sources(arguments),
        _say,
        os.environ.get(presence.VARIABLE, ""),
        arguments.keep_unused_minutes,
        platform_of(arguments.pods_of),
    )
    if arguments.share:
        share(containerd, plan)
    print(json.dumps(asdict(result)), flush=True)
    # `pulumi up` shows the last line that a command has written. It should be readable, not JSON.
    print(f"image: {plan.reference} is on the node", file=sys.stderr, flush=True)
    return 0


def _pull(arguments: argparse.Namespace, containerd: Containerd) -> int:
    plan = _plan(arguments)
    _refuse_other_plan(os.environ.get(planning.VARIABLE, ""), plan)
    digest = os.environ.get(DIGEST_VARIABLE, "")
    if not digest:
        raise ValueError(
            f"{DIGEST_VARIABLE} is not set: give it the digest that `ensure` has printed on the "
            "node from which the others get the image"
        )
    how = Pull(
        shlex.split(arguments.puller),
        digest,
        arguments.limit_seconds,
        os.environ.get(presence.VARIABLE, ""),
        arguments.keep_unused_minutes,
        platform_of(arguments.pods_of),
    )
    result = pull(plan, containerd, how, Path(arguments.cache), _say)
    print(json.dumps(asdict(result)), flush=True)
    print(f"image: {plan.reference} is on the node", file=sys.stderr, flush=True)
    return 0


def _push(arguments: argparse.Namespace) -> int:
    # These modules import an HTTP client, which the other actions do not need.
    from infra.image.registry.connection import Access
    from infra.image.registry.push import push
    from infra.image.registry.repository import Repository

    plan = _plan(arguments)
    _refuse_other_plan(os.environ.get(planning.VARIABLE, ""), plan)
    if arguments.user:
        login = Login(arguments.user, os.environ.pop(PASSWORD_VARIABLE, ""))
    else:
        login = find_login(plan.repository, os.environ, Path.home())
    sources = _sources(arguments)
    access = Access(
        plan.repository,
        login,
        arguments.plain_http,
        sources.authorities,
        os.environ,
        owner=arguments.repository_of,
    )
    result = push(
        plan,
        Repository(access),
        sources,
        _say,
        request=os.environ.get(presence.VARIABLE, ""),
        compress=arguments.compression == "gzip",
    )
    print(json.dumps(asdict(result)), flush=True)
    print(f"image: {plan.reference} is in the registry", file=sys.stderr, flush=True)
    return 0


def platform_of(namespace: str) -> wanted.Platform:
    """Return the platform that wants the image.

    Its cluster is asked for the images of its pods if the environment has a kubeconfig.

    Args:
        namespace: the platform's Kubernetes namespace; empty: no platform wants the image.
    """
    # Removed, so that builders and other programs do not get the token in it.
    kubeconfig = os.environ.pop(pods_images.VARIABLE, "")
    if not kubeconfig:
        return wanted.Platform(namespace)
    ask = partial(images_of_pods, kubeconfig, namespace, _say)
    return wanted.Platform(namespace, ask)


def _sources(arguments: argparse.Namespace) -> Sources:
    return Sources(
        PROJECT,
        Path(arguments.cache),
        arguments.builder,
        arguments.build_on,
        Path(arguments.layout) if arguments.layout else None,
        _authorities(arguments.authorities),
    )


def _refuse_other_plan(planned: str, plan: ImagePlan) -> None:
    """Refuse to make another image than `pulumi up` has planned, because pods ask for that one."""
    if planned and planned != plan.reference:
        changes = "; ".join(changes_since(planned, plan))
        raise ValueError(
            f"{planned} was planned, but files or settings have changed since, and would make "
            f"{plan.reference}. Changed: {changes}. Run `pulumi up` again, and change nothing "
            "below trainer/ while it runs"
        )


def _authorities(file: str | None) -> str:
    if not file:
        return ""
    return sys.stdin.read() if file == "-" else Path(file).read_text()


def _check(arguments: argparse.Namespace, containerd: Containerd) -> int:
    plan = _plan(arguments)
    found = problems(plan, containerd)
    for problem in found:
        _say(f"image: {problem}")
    print(json.dumps({"image": plan.reference, "problems": len(found)}), flush=True)
    return 1 if found else 0


def _remove(arguments: argparse.Namespace, containerd: Containerd) -> int:
    """Remove the names of the image from containerd. A containerd that does not answer is no error.

    With --pods-of, nothing is removed if pods or the platform of another namespace need an image.
    """
    check_repository(arguments.repository)
    try:
        there = containerd.images()
    except ContainerdError as error:
        _say(f"image: nothing to remove, containerd does not answer: {error}")
        there = {}
    ours = (arguments.repository, deps_repository(arguments.repository))
    names = arguments.reference or [
        name for name in there if name.rpartition(":")[0] in ours or name.partition("@")[0] in ours
    ]
    used: list[str] = []
    if there and arguments.pods_of:
        # A pod's container may name the image `sha256:...`, so the images are compared by digest.
        containers = containerd.container_images(outside=arguments.pods_of)
        digests = {there[name] for name in containers if name in there}
        used = [name for name in names if there.get(name) in digests]
        wanted.release(containerd, [name for name in names if name in there], arguments.pods_of)
    for name in used:
        _say(f"image: {name} stays with what it is made of: pods of another namespace use it")
    others = _platforms_of(containerd, names) if there and arguments.pods_of else []
    if others and not used:
        who = ", ".join(others)
        _say(f"image: {names[0]} stays with what it is made of: the platform of {who} wants it")
    # Images have a second name by digest, under which nodes give them to each other.
    tags = [name for name in names if name in there]
    names += [by_digest(name.rpartition(":")[0], there[name]) for name in tags]
    removed = containerd.remove_images(names) if there and not used and not others else []
    print(json.dumps({"removed": len(removed)}), flush=True)
    return 0


def _platforms_of(containerd: Containerd, names: Sequence[str]) -> list[str]:
    """Return the namespaces whose platforms want one of these images."""
    labels = containerd.labels()
    found = (namespace for name in names for namespace in wanted.platforms(labels.get(name, {})))
    return [f"namespace {namespace}" for namespace in dict.fromkeys(found)]


def _sbom(arguments: argparse.Namespace, containerd: Containerd) -> int:
    """Write what the image holds. Layers that were not built here are read from containerd."""
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


ACTIONS = {"ensure": _ensure, "pull": _pull, "check": _check, "remove": _remove, "sbom": _sbom}


def _plan(arguments: argparse.Namespace) -> ImagePlan:
    if arguments.program:
        folder = Path(arguments.program).resolve()
        repository = arguments.repository.removesuffix(program_repository(""))
        return plan_program_image(folder, repository)
    return plan_image(
        PROJECT, arguments.repository, arguments.base_image, arguments.torch_index_url
    )


def _say(text: str) -> None:
    for line in short_lines(text):
        print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m infra.image", description=__doc__)
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=(*ACTIONS, "push"),
        help="ensure: put the image into a node's containerd; pull: let a node take it from the "
        "other nodes; check: say whether pods would find it; remove: take it from the node; "
        "sbom: list what is in it; push: send it to a registry",
    )
    add = parser.add_argument
    add("--repository", required=True, help="image name without tag")
    add(
        "--base-image",
        default="docker.io/library/python:3.11-slim-bookworm",
        help="what FROM names (default: %(default)s)",
    )
    add(
        "--program",
        metavar="FOLDER",
        help="the image that the Dockerfile in this folder makes, not the trainer's",
    )
    add("--torch-index-url", help="further package index for torch (default: none)")
    add("--builder", default="auto", help=f"auto, {', '.join(BUILDERS)} (default: %(default)s)")
    text = "the machine that builds the dependencies (default: %(default)s)"
    add("--build-on", choices=("here", "node"), default="here", help=text)
    add("--ctr", default="ctr", help="the command that runs ctr, such as 'k3s ctr'")
    add("--address", help="containerd's socket (default: ctr's own)")
    add(
        "--cache", default=str(cache_folder()), help="for built dependencies (default: %(default)s)"
    )
    add("--layout", help="the dependencies as an OCI layout, of a bundle; nothing is built")
    add(
        "--authorities",
        metavar="FILE",
        help="certificates (PEM) that the build trusts beside the usual ones; -: standard input",
    )
    _add_options_of_actions(parser)
    return parser


def _add_options_of_actions(parser: argparse.ArgumentParser) -> None:
    """Add the options that only some actions use; their help names the actions."""
    add = parser.add_argument
    add(
        "--keep-unused-minutes",
        type=int,
        default=KEEP_UNUSED_MINUTES,
        help="ensure: older tags stay that were asked for within this time (default: %(default)s)",
    )
    add("--reference", action="append", help="remove: only this name; may be given again")
    add(
        "--pods-of",
        metavar="NAMESPACE",
        default="",
        help="the platform's Kubernetes namespace. ensure: notes that this platform wants the "
        "image. remove: takes nothing that pods or the platform of another namespace need",
    )
    add(
        "--user", default="", help=f"push: of the registry; the password is in ${PASSWORD_VARIABLE}"
    )
    add(
        "--repository-of",
        metavar="STACK",
        default="",
        help="push: the stack whose setting names the repository, for messages (default: this one)",
    )
    add("--plain-http", action="store_true", help="push: the registry speaks no TLS")
    add(
        "--compression",
        choices=("gzip", "none"),
        default="gzip",
        help="push: of layers (default: %(default)s)",
    )
    add(
        "--share",
        action="store_true",
        help="ensure: lets k3s' embedded registry give the image to other nodes",
    )
    add(
        "--puller",
        default="k3s crictl pull",
        help=f"pull: the command that pulls the image with the digest in ${DIGEST_VARIABLE} from "
        "the other nodes (default: %(default)s)",
    )
    add("--limit-seconds", type=int, default=1800, help="pull: of all tries (default: %(default)s)")
    add("--output", default="-", help="sbom: file for the document (default: standard output)")


if __name__ == "__main__":
    sys.exit(main())
