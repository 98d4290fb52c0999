"""Task `upload`: brings files of this machine onto the claim, through the Kubernetes API alone.

Each file is sent in parts by `exec` to a short-lived pod. After a broken connection the file goes
on at the size that has arrived. Its sha256 is compared before it gets its name.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from infra.kube import receiver
from infra.kube.api import Api
from infra.kube.errors import TaskError, UnreachableError
from infra.kube.exec_stream import execute
from infra.kube.job import Job
from infra.kube.objects import Json
from infra.kube.say import say
from infra.kube.task_pod import DATA_MOUNT, TaskPod, running

PART_BYTES = 64 << 20  # one connection's; after a cut no more than this is in doubt
BLOCK_BYTES = 256 << 10
MOST_CUTS = 8  # connections cut one after the other without a new byte
TELL_SECONDS = 20.0
DEADLINE_SECONDS = 6 * 3600
TASK = "upload"


@dataclass(frozen=True)
class SentFile:
    """One file: where it is here, where it goes, and what it must contain."""

    source: Path
    target: str
    size: int
    sha256: str


class Pod:
    """Commands of `receiver.py` in the pod."""

    def __init__(self, api: Api, path: str, container: str = TASK) -> None:
        self._api = api
        self._path = path
        self._container = container
        self._program = Path(receiver.__file__).read_text()

    def call(self, *words: str, blocks: Iterator[bytes] | None = None) -> dict[str, Any]:
        """Run one command; raises UnreachableError when the connection is cut."""
        command = ["python3", "-c", self._program, *words]
        ended = execute(self._api, self._path, self._container, command, blocks)
        if ended.exit_code:
            last = ended.stderr.strip().splitlines()[-1:] or ["no error text"]
            raise TaskError(f"the pod cannot write {words[1]}: {last[0]}")
        return cast(dict[str, Any], json.loads(ended.stdout))


def create(job: Job, api: Api) -> None:
    """Send the files that are not there yet.

    Raises:
        TaskError: a file cannot be read or has changed, the pod does not start, the connection
            is cut again and again, or what arrived is not what was sent.
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


def delete(job: Job, api: Api) -> None:
    """The files stay with the data."""


def sent_file(given: Json) -> SentFile:
    """Read one entry of the job. Raises ValueError: it lacks a field or its target leaves /data."""
    for name in ("source", "target", "sha256", "size"):
        if name not in given:
            raise ValueError(f"the job's file {given!r} has no {name!r}")
    target = PurePosixPath(str(given["target"]))
    if target.is_absolute() or ".." in target.parts:
        raise ValueError(f"the target {str(target)!r} must be a path below {DATA_MOUNT}")
    where = str(PurePosixPath(DATA_MOUNT) / target)
    return SentFile(Path(str(given["source"])), where, int(given["size"]), str(given["sha256"]))


def check_source(file: SentFile) -> None:
    """Raises TaskError unless the file can be read and has its size and contents."""
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
    """Send one file unless it is there.

    Args:
        file: what is sent.
        pod: on the claim.
        command: what the user runs again to go on, for messages.
        is_new: nothing of it was there a moment ago, so that nobody has to ask.

    Raises:
        TaskError: the connection is cut again and again, or what arrived is not what was sent.
    """
    cuts, have, asks, told = 0, 0, not is_new, time.monotonic()
    while True:
        try:
            if asks:
                state = pod.call("look", file.target, str(file.size), file.sha256)
                if state["complete"]:
                    say(f"{file.target} is there")
                    return
                if state["have"] > have:
                    cuts = 0
                have = int(state["have"])
            asks = True  # after a cut
            while "ok" not in (answer := _send_part(file, pod, have)):
                have, cuts = have + int(answer["got"]), 0
                if time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    say(f"{file.target}: {have:,} of {file.size:,} bytes")
        except UnreachableError as reason:
            cuts += 1
            if cuts > MOST_CUTS:
                raise TaskError(
                    f"the connection was cut {cuts} times at {have:,} of {file.size:,} "
                    f"bytes of {file.source} ({reason}); {command} continues there"
                ) from None
            say(f"{file.target}: {reason}; it continues with what has arrived")
            time.sleep(min(cuts, 5))
            continue
        if answer["ok"]:
            say(f"{file.target}: {file.size:,} bytes sent, sha256 is right")
            return
        raise TaskError(
            f"{file.target}: what arrived has sha256 {answer['found']}, not {file.sha256}, and "
            f"was removed; run {command} again"
        )


def _send_part(file: SentFile, pod: Pod, offset: int) -> dict[str, Any]:
    """The pod's answer, which has `ok` once the whole file was there."""
    count = min(PART_BYTES, file.size - offset)
    words = ("receive", file.target, str(file.size), file.sha256, str(offset), str(count))
    answer = pod.call(*words, blocks=_blocks(file.source, offset, count))
    if answer["got"] < count:
        raise UnreachableError(f"{answer['got']} of {count} bytes arrived")
    return answer


def _blocks(source: Path, offset: int, count: int) -> Iterator[bytes]:
    """Raises TaskError: the file became shorter meanwhile."""
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
