"""Imports images into containerd, with only the blobs that it lacks, in one stream or in parts."""

import hashlib
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import IO, TypeVar

from infra.command_line import Say
from infra.image.containerd import Containerd, ContainerdError
from infra.image.node import CUT_OFF, Node, NodeError, after_begin_line, failure_reason
from infra.image.oci import COPY_BYTES, Image, archive_size_bytes, write_archive
from infra.image.parts import joined, open_transfer, remove_parts, send_parts

Result = TypeVar("Result")
# With this label the kubelet does not remove the image, if containerd knows the label (1.6.29, 1.7
# and later).
PINNED = {"io.cri-containerd.pinned": "pinned"}
COLLECTED_PAUSES_SECONDS = (0, 1, 3)  # pauses before the next attempts of an import
RESTART_SECONDS, RESTART_PAUSE_SECONDS = 180, 2
# What ctr reports if no process listens at containerd's socket. ctr 1.x begins with the first text.
# ctr 2.x only opens the connection with its first request, which then fails with the second text,
# and with the third one if the socket is not there.
NOBODY_LISTENS = ("failed to dial", "while dialing", "cannot access socket")
# What ctr reports if containerd ends while it works on ctr's request.
ENDED_MEANWHILE = ("transport is closing", "error reading from server")


def import_images(
    containerd: Containerd,
    images: Mapping[str, Image],
    say: Say,
    labels: Mapping[str, str] | None = None,
) -> int:
    """Import the blobs that are missing, name the images and pin them.

    Args:
        containerd: the containerd that gets the images.
        images: `{full name: image}`.
        say: takes a line of progress.
        labels: further labels for each image.

    Returns:
        Number of content bytes that were sent.

    Raises:
        ContainerdError: the import failed. The text ends with ctr's message.
    """
    for pause_seconds in COLLECTED_PAUSES_SECONDS:
        try:
            moved = _import_missing(containerd, images, say)
            break
        except ContainerdError as error:
            # containerd may have removed a listed blob as garbage before the import referred to it.
            if "not found" not in str(error):
                raise
            time.sleep(pause_seconds)
    else:
        moved = _import_missing(containerd, images, say)
    for name in images:
        containerd.set_labels(name, {**PINNED, **(labels or {})})
    return moved


def in_spite_of_a_restart(containerd: Containerd, say: Say, work: Callable[[], Result]) -> Result:
    """Do `work`, and do it once more if it fails because containerd restarts meanwhile.

    When the GPU Operator is installed, its container toolkit ends containerd, and k3s with it.
    systemd then starts k3s again. `work` must be such that it may be done again.

    Raises:
        ContainerdError, NodeError: `work` failed while containerd did not restart, or twice.
    """
    try:
        return work()
    except (ContainerdError, NodeError) as error:  # The latter comes from a build at the node.
        if not has_restarted(containerd, say, str(error)):
            raise
        return work()


def has_restarted(containerd: Containerd, say: Say, error: str) -> bool:
    """Whether containerd has ended, and answers again within RESTART_SECONDS.

    Args:
        containerd: the containerd.
        say: takes a line of progress.
        error: the error of a command. If containerd is back before it is asked, only this text
            shows that it has ended.
    """
    has_ended = _nobody_listens(error) or any(text in error for text in ENDED_MEANWHILE)
    is_away, until = False, time.monotonic() + RESTART_SECONDS
    while True:
        try:
            containerd.ask("version")
        except ContainerdError as reason:
            # Other errors do not go away.
            if not _nobody_listens(str(reason)) or time.monotonic() > until:
                return False
        else:
            return has_ended or is_away
        if not is_away:
            say("image: containerd does not answer; it may be restarting, which is waited for")
        is_away = True
        time.sleep(RESTART_PAUSE_SECONDS)


def _nobody_listens(error: str) -> bool:
    return "permission denied" not in error and any(text in error for text in NOBODY_LISTENS)


def _import_missing(containerd: Containerd, images: Mapping[str, Image], say: Say) -> int:
    held = frozenset(containerd.ask("content", "ls", "-q").split())
    size_bytes = archive_size_bytes(images, held)
    node = containerd.node
    if node and node.remote and size_bytes > containerd.part_bytes:
        _import_in_parts(containerd, node, images, held, say)
    else:
        _import_stream(containerd, images, held)
    return size_bytes


def _import_stream(
    containerd: Containerd, images: Mapping[str, Image], held: frozenset[str]
) -> None:
    try:
        process = subprocess.Popen(
            containerd.command("images", "import", "-"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pipesize=COPY_BYTES,
        )
    except FileNotFoundError as error:
        raise containerd.no_program() from error
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        broken = _feed(process.stdin, containerd.input_head, images, held)
        output = after_begin_line(process.stdout.read()).decode(errors="replace").strip()
    if process.returncode or broken:
        raise ContainerdError(f"{containerd.shown('images import')}: {output[-1500:] or broken}")


def _import_in_parts(
    containerd: Containerd,
    node: Node,
    images: Mapping[str, Image],
    held: frozenset[str],
    say: Say,
) -> None:
    try:
        folder = send_archive(node, images, held, say, containerd.part_bytes)
        ctr = shlex.join([*containerd.ctr_words(), "images", "import", "-"])
        command = node.as_root(["sh", "-c", f"{joined(folder)} | {ctr}"])
        done = subprocess.run(
            command, input=containerd.input_head, capture_output=True, check=False
        )
        if done.returncode != CUT_OFF:
            # Parts that were refused are removed as well, so that the next attempt sends them.
            remove_parts(node, folder)
    except NodeError as error:
        raise ContainerdError(str(error)) from error
    if done.returncode:
        raise ContainerdError(f"{containerd.shown('images import')}: {failure_reason(done)}")


def send_archive(
    node: Node, images: Mapping[str, Image], held: frozenset[str], say: Say, part_bytes: int
) -> str:
    """Send an archive of the missing blobs to a node, in parts.

    An import that broke off may have put some of the blobs into containerd. The next attempt still
    makes the archive of the first attempt, whose digests are in the transfer's note. An archive
    without those blobs would be cut into other parts, and all of them would be sent again.

    Args:
        node: the machine that gets the archive.
        images: `{full name: image}`.
        held: digests of the blobs that containerd has.
        say: takes a line of progress.
        part_bytes: size of a part before it is compressed.

    Returns:
        The folder on the node that holds the parts.

    Raises:
        NodeError: as for `send_parts`.
    """
    parts = {part.digest: part for image in images.values() for part in image.blobs}
    missing = parts.keys() - held
    name = hashlib.sha256(" ".join([*images, *parts]).encode()).hexdigest()[:32]
    note = " ".join(sorted(missing))
    transfer = open_transfer(node, name, note)
    noted = frozenset(transfer.note.split())
    here = {digest for digest, part in parts.items() if part.content is not None}
    if not missing <= noted <= here:
        remove_parts(node, transfer.folder)
        transfer, noted = open_transfer(node, name, note), missing
    left_out = frozenset(parts.keys() - noted)
    send_parts(node, transfer, lambda to: write_archive(to, images, left_out), say, part_bytes)
    return transfer.folder


def _feed(stream: IO[bytes], head: bytes, images: Mapping[str, Image], held: frozenset[str]) -> str:
    """Write the archive, and return the error if the pipe broke; otherwise an empty text.

    The error is not raised, because the importer's own message says more.
    """
    try:
        stream.write(head)
        write_archive(stream, images, held)
        stream.close()
    except BrokenPipeError as error:
        return str(error)
    return ""
