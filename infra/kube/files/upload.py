"""Task `upload`: sends files of this machine to the claim, using only the Kubernetes API.

Each file is sent in parts by `exec` to a short-lived pod. If the connection breaks, sending
continues after the bytes that have arrived. A file gets its final name only after its sha256 was
checked.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import execute
from infra.kube.errors import TaskError, UnreachableError
from infra.kube.files import receiver
from infra.kube.files.task_pod import DATA_MOUNT, TaskPod, running
from infra.kube.job import Job
from infra.kube.objects import Json
from infra.kube.say import last_line, say

PART_BYTES = 64 << 20  # Each part has its own connection, so a cut affects no more than this.
BLOCK_BYTES = 256 << 10
MOST_CUTS = 8  # how many connections in a row may be cut without a new byte
TELL_SECONDS = 20.0
DEADLINE_SECONDS = 6 * 3600
TASK = "upload"


@dataclass(frozen=True)
class SentFile:
    """A file that is sent.

    Args:
        source: its path on this machine.
        target: its path in the pod.
        size: its size in bytes.
        sha256: the sha256 of its contents, in hex digits.
    """

    source: Path
    target: str
    size: int
    sha256: str


class Pod:
    """Runs the commands of `receiver.py` in a pod."""

    def __init__(self, api: Api, path: str, container: str = TASK) -> None:
        self._api = api
        self._path = path
        self._container = container
        self._program = Path(receiver.__file__).read_text()

    def call(self, *words: str, blocks: Iterator[bytes] | None = None) -> dict[str, Any]:
        """Run one command and return the JSON that it prints.

        Raises:
            TaskError: the command has failed.
            UnreachableError: the connection was cut.
        """
        command = ["python3", "-c", self._program, *words]
        ended = execute(self._api, self._path, self._container, command, blocks)
        if ended.exit_code:
            raise TaskError(f"the pod cannot write {words[1]}: {last_line(ended.stderr)}")
        return cast(dict[str, Any], json.loads(ended.stdout))


def create(job: Job, api: Api) -> None:
    """Send the files of the job that are not on the volume yet.

    Raises:
        TaskError: a file cannot be read or has changed, the pod does not start, the connection
            is cut too often, or the file that arrived has other contents.
    """
    files = [sent_file(given) for given in cast(list[Json], job.fields.get("files") or [])]
    if not files:
        return
    for file in files:
        check_source(file)
    pod = TaskPod(
        task=TASK,
        owner=job.owner,
        namespace=job.namespace,
        image=job.text("image"),
        command=("python3", "-c", f"import time; time.sleep({DEADLINE_SECONDS})"),
        claim=job.text("claim"),
        deadline_seconds=DEADLINE_SECONDS,
        uid=job.number("uid", 1000),
        placement=job.mapping("placement"),
    )
    with running(api, pod) as path:
        for file in files:
            send(file, Pod(api, path))


def sent_file(given: Json) -> SentFile:
    """Read one entry of the job's `files`.

    Raises:
        ValueError: the entry lacks a field, or its target is outside of /data.
    """
    for name in ("source", "target", "sha256", "size"):
        if name not in given:
            raise ValueError(f"the job's file {given!r} has no {name!r}")
    target = PurePosixPath(str(given["target"]))
    if target.is_absolute() or ".." in target.parts:
        raise ValueError(f"the target {str(target)!r} must be a path below {DATA_MOUNT}")
    where = str(PurePosixPath(DATA_MOUNT) / target)
    return SentFile(Path(str(given["source"])), where, int(given["size"]), str(given["sha256"]))


def check_source(file: SentFile) -> None:
    """Raise TaskError unless the file can be read and has the expected size and sha256."""
    try:
        with file.source.open("rb") as source:
            found = hashlib.file_digest(source, "sha256").hexdigest()
            size = source.tell()
    except OSError as error:
        raise TaskError(f"{file.source} cannot be read: {error.strerror}") from None
    if (size, found) != (file.size, file.sha256):
        raise TaskError(
            f"{file.source} has changed since this `pulumi up` began ({size} bytes, sha256 "
            f"{found}; it had {file.size} bytes, {file.sha256}); run pulumi up again"
        )


def send(file: SentFile, pod: Pod, command: str = "pulumi up", *, is_new: bool = False) -> None:
    """Send one file unless it is on the volume already.

    Args:
        file: the file.
        pod: a pod that mounts the claim.
        command: the command that the user has to run again after an error, for messages.
        is_new: whether the caller knows that nothing of the file is there. Then the pod is not
            asked for it first.

    Raises:
        TaskError: the connection is cut too often, or the file that arrived has other contents.
    """
    sending = _Sending(file, pod, command)
    asks = not is_new
    while not sending.is_done(asks=asks):
        asks = True  # The connection was cut, so it is not known how much has arrived.


class _Sending:
    """A file that is being sent.

    `_have` bytes have arrived. Since new bytes arrived, the connection was cut `_cuts` times.
    """

    def __init__(self, file: SentFile, pod: Pod, command: str) -> None:
        self._file = file
        self._pod = pod
        self._command = command
        self._have = 0
        self._cuts = 0
        self._told = time.monotonic()

    def is_done(self, *, asks: bool) -> bool:
        """Try to send the rest of the file.

        Returns True if the whole file is there, and False if the connection was cut.

        Args:
            asks: whether to ask the pod first how much of the file is there.

        Raises:
            TaskError: as for `send`.
        """
        file = self._file
        try:
            if asks and self._is_there():
                say(f"{file.target} is there")
                return True
            answer = self._send_rest()
        except UnreachableError as reason:
            self._bear(reason)
            return False
        if not answer["ok"]:
            raise TaskError(
                f"{file.target}: what arrived has sha256 {answer['found']}, not {file.sha256}, and "
                f"was removed; run {self._command} again"
            )
        say(f"{file.target}: {file.size:,} bytes sent, sha256 is right")
        return True

    def _is_there(self) -> bool:
        """Ask the pod whether the whole file is there, and note how many bytes have arrived."""
        file = self._file
        state = self._pod.call("look", file.target, str(file.size), file.sha256)
        if state["have"] > self._have:
            self._cuts = 0
        self._have = int(state["have"])
        return bool(state["complete"])

    def _send_rest(self) -> dict[str, Any]:
        """Send one part after the other; return the pod's answer to the last part."""
        while "ok" not in (answer := _send_part(self._file, self._pod, self._have)):
            self._have += int(answer["got"])
            self._cuts = 0
            if time.monotonic() - self._told > TELL_SECONDS:
                self._told = time.monotonic()
                say(f"{self._file.target}: {self._have:,} of {self._file.size:,} bytes")
        return answer

    def _bear(self, reason: UnreachableError) -> None:
        """Print that the connection was cut, and wait for some seconds.

        Raises TaskError: it was cut too often.
        """
        file = self._file
        self._cuts += 1
        if self._cuts > MOST_CUTS:
            raise TaskError(
                f"the connection was cut {self._cuts} times at {self._have:,} of {file.size:,} "
                f"bytes of {file.source} ({reason}); {self._command} continues there"
            ) from None
        say(f"{file.target}: {reason}; it continues with what has arrived")
        time.sleep(min(self._cuts, 5))


def _send_part(file: SentFile, pod: Pod, offset: int) -> dict[str, Any]:
    """Send one part and return the pod's answer. It has the field `ok` after the last part.

    Raises UnreachableError: not all bytes of the part have arrived.
    """
    count = min(PART_BYTES, file.size - offset)
    words = ("receive", file.target, str(file.size), file.sha256, str(offset), str(count))
    answer = pod.call(*words, blocks=_blocks(file.source, offset, count))
    if answer["got"] < count:
        raise UnreachableError(f"{answer['got']} of {count} bytes arrived")
    return answer


def _blocks(source: Path, offset: int, count: int) -> Iterator[bytes]:
    """The bytes of a part, in blocks. Raises TaskError: the file became shorter meanwhile."""
    with source.open("rb") as file:
        file.seek(offset)
        while count:
            block = file.read(min(BLOCK_BYTES, count))
            if not block:
                raise TaskError(
                    f"{source} became shorter while it was sent; run the same command again when "
                    "nothing writes to it"
                )
            count -= len(block)
            yield block
