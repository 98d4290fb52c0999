"""Builds the dependencies at the node, so that only the build's files and the code are sent there.

The build runs as root, because containerd's socket belongs to root. A folder on the node holds what
the build gets from this machine (package index, proxy, CA bundle). Only root can read the folder,
and it is removed after the build.
"""

import io
import json
import shlex
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from infra.image.build_context import Build, builder_environment, proxies, stage
from infra.image.builders import BUILDERS, build_command, choose_builder
from infra.image.node import Node, NodeError
from infra.image.oci import NAME_ANNOTATION, as_json

FOLDER = "/var/tmp/disttrain-build-"
KEEP_MINUTES = 24 * 60  # Folders of builds whose connection broke are removed after this time.
PROBE_SECONDS = 60

# The shell reads the file `environment`, so that a proxy's password is on no command line.
_BUILD = """\
cd {folder} && . ./environment
{command} >log 2>&1 || {{ tail -n 15 log | cut -c1-200 >&2; exit 1; }}"""


def choose_builder_at(node: Node, wanted: str) -> str:
    """Return the builder that works at the node.

    Raises:
        ValueError: no builder works. The text says what was tried, and what to do.
        NodeError: the node cannot be reached.
    """

    def succeeds(command: Sequence[str]) -> bool:
        probe = f"timeout {PROBE_SECONDS} {shlex.join(command)} >/dev/null 2>&1"
        return _as_root(node, f"if {probe}; then echo yes; else echo no; fi").strip() == "yes"

    try:
        return choose_builder(wanted, succeeds, "the node")
    except ValueError as error:
        raise ValueError(
            f"{error}; install {', '.join(BUILDERS[:-1])} or {BUILDERS[-1]} there, "
            "or set imageBuildOn: here"
        ) from error


def build_at(
    node: Node, builder: str, build: Build, project_root: Path, ctr: Sequence[str]
) -> None:
    """Build the `deps` stage at the node and import it there under the build's name.

    Args:
        ctr: the words that run containerd's ctr at the node.

    Raises:
        NodeError: the connection broke, or the build or the import failed. The text ends with the
            last lines of the command.
    """
    folder = PurePosixPath(
        _as_root(
            node,
            f"find {FOLDER}* -maxdepth 0 -user root -mmin +{KEEP_MINUTES} -exec rm -rf {{}} + "
            f"2>/dev/null; umask 077; mktemp -d {FOLDER}XXXXXX",
        ).strip()
    )
    layout = folder / "layout"
    try:
        with tempfile.TemporaryDirectory(prefix="disttrain-context-") as scratch:
            secrets = stage(project_root, Path(scratch), build)
            variables = {**builder_environment(build, folder), **proxies()}.items()
            exports = [f"export {name}={shlex.quote(value)}\n" for name, value in variables]
            (Path(scratch) / "environment").write_text("".join(exports))
            _as_root(node, f"tar -xf - -C {folder}", _tar(Path(scratch)))
        command = build_command(builder, build, folder, secrets, layout)
        _as_root(node, _BUILD.format(folder=folder, command=shlex.join(command)))
        if builder == "buildah":
            index = _as_root(node, f"cat {layout}/index.json")
            _as_root(node, f"cat >{layout}/index.json", named_index(index, build.name))
            archive = f"tar -C {layout} -cf - oci-layout index.json blobs"
        else:
            archive = shlex.join([builder, "save", build.name])
        _as_root(node, f"{archive} | {shlex.join([*ctr, 'images', 'import', '-'])}")
    finally:
        _as_root(node, f"rm -rf {folder}")


def named_index(index: str, name: str) -> bytes:
    """Return the `index.json` of a layout with the full name of its only image for containerd."""
    content: dict[str, Any] = json.loads(index)
    (entry,) = content["manifests"]
    return as_json({**content, "manifests": [{**entry, "annotations": {NAME_ANNOTATION: name}}]})


def _tar(folder: Path) -> bytes:
    """Pack all files below `folder` as files of root, because the node has other users."""
    buffer = io.BytesIO()

    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=owned_by_root)
    return buffer.getvalue()


def _as_root(node: Node, text: str, content: bytes = b"") -> str:
    """Run shell text as root at the node with `content` as its input, and return its output."""
    try:
        return node.run_as_root(["sh", "-c", text], content)
    except NodeError as error:
        raise NodeError(f"at the node: {error}") from None
