"""Reads a run from its mirror, with the trainer's own reader of mirrors."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

from cli.fetch.batches import Piece
from cli.fetch.mirror_errors import reason_of
from cli.fetch.transfer import GoneError, Send
from cli.fetch.wanted import MANIFEST
from infra.kube.api_server.exec_stream import Sink
from infra.kube.errors import UnreachableError
from trainer.mirror.contents import RESULTS, remote_manifests
from trainer.mirror.remote_folder import DamagedError, RemoteFolder, StoreError
from trainer.run_folder import CHECKPOINTS_DIR

BLOCK_BYTES = 4 << 20  # the size of one request, and so the most that is sent again after a cut
STATE = "state.json"
NEEDED = (STATE, "layout.json")
GONE = "a file was removed from the mirror while it was read"


class MirrorSource:
    """A source for `Bringer` that reads from a mirror. Several streams may read at once.

    Args:
        run_folder: the run's folder in the mirror.
    """

    def __init__(self, run_folder: RemoteFolder) -> None:
        self._run_folder, self._checkpoints = run_folder, run_folder.below(CHECKPOINTS_DIR)
        # The reasons by the names of the files that the store itself reports as damaged.
        self._damaged: dict[str, str] = {}
        self.where = f"the mirror {run_folder.parent().url}"

    def ask(self, *words: str) -> dict[str, Any]:
        """Answer `list RUN` or `verify CHECKPOINT_FOLDER` as `pod_program.py` does.

        Raises:
            ValueError: the store refuses, does not answer, or has no such bucket.
        """
        name = PurePosixPath(words[1]).name
        try:
            return self._contents() if words[0] == "list" else self._verify(name)
        except StoreError as error:
            raise ValueError(reason_of(error, self._run_folder.parent().url)) from None

    def open_send(self, run_path: str, names: Sequence[str]) -> Callable[[], Send]:
        """Return a function that opens a stream; a stream requests its pieces block by block.

        `run_path` is the name of the run's folder in the mirror.
        """
        assert self._run_folder.url.endswith(f"/{run_path}")

        def send(pieces: Sequence[Piece], sink: Sink) -> None:
            for piece in pieces:
                self._copy(names[piece.file], piece, sink)

        return lambda: send

    def _copy(self, name: str, piece: Piece, sink: Sink) -> None:
        offset, end = piece.offset, piece.offset + piece.count
        while offset < end:
            try:
                block = self._run_folder.read_part(name, offset, min(BLOCK_BYTES, end - offset))
            except StoreError as error:
                reason = type(error.__cause__).__name__
                raise UnreachableError(f"the mirror does not send {name} ({reason})") from None
            except DamagedError as error:
                self._damaged[name] = str(error)
                raise GoneError(str(error)) from None
            if not block:
                raise GoneError(GONE)
            sink(memoryview(block))
            offset += len(block)

    def _contents(self) -> dict[str, Any]:
        there = self._run_folder.names()
        if not there:
            self._run_folder.check()
            return {"found": False, "runs": self._run_folder.parent().names()}
        manifests = remote_manifests(self._checkpoints)
        newest_first = sorted(manifests, reverse=True)
        results = [self._result(name) for name in RESULTS if name in there]
        return {
            "found": True,
            "files": [each for each in results if each],
            "checkpoints": [self._checkpoint(step, manifests[step]) for step in newest_first],
        }

    def _result(self, name: str) -> dict[str, Any] | None:
        """Describe a file beside the checkpoints; None if it is gone or damaged.

        No manifest has its size and sha256, so both are computed from its content.
        """
        try:
            content = None if name in self._damaged else self._run_folder.read(name)
        except DamagedError as error:
            self._damaged[name] = str(error)
            content = None
        if content is None:
            return None
        if name.endswith(".jsonl"):
            content = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
        return {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def _checkpoint(self, step: int, manifest: bytes) -> dict[str, Any]:
        folder = f"step-{step:08d}"
        problem, val_loss = self._problem(folder, manifest), None
        if not problem:
            try:
                value = json.loads(self._checkpoints.read(f"{folder}/{STATE}") or b"{}")["val_loss"]
                val_loss = value if isinstance(value, float | int) else None
            except (DamagedError, ValueError, KeyError, TypeError):
                problem = f"{STATE} is damaged"
        text = manifest.decode(errors="replace")
        return {"step": step, "manifest": text, "val_loss": val_loss, "problem": problem}

    def _problem(self, folder: str, manifest: bytes) -> str:
        """Return why this is no complete checkpoint by the trainer's rules; empty if it is one.

        The contents of the files are not read.
        """
        try:
            entries = _entries(manifest)
            for name in NEEDED:
                if name not in entries:
                    return f"{MANIFEST} does not list {name}"
            sizes = self._checkpoints.sizes(folder)
            for name, entry in entries.items():
                if reason := self._damaged.get(f"{CHECKPOINTS_DIR}/{folder}/{name}"):
                    return reason
                if name not in sizes:
                    return f"{name} is missing"
                if sizes[name] != entry["bytes"]:
                    return f"{name} has {sizes[name]} bytes, {MANIFEST} says {entry['bytes']}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{MANIFEST} is damaged: {error!r}"
        return ""

    def _verify(self, folder: str) -> dict[str, Any]:
        """Read a checkpoint in the mirror, and compare it with its manifest."""
        try:
            manifest = self._checkpoints.read(f"{folder}/{MANIFEST}")
            if manifest is None:
                return {"found": False, "problem": ""}
            problem = self._problem(folder, manifest) or self._changed(folder, _entries(manifest))
        except DamagedError as error:
            problem = str(error)
        return {"found": True, "problem": problem}

    def _changed(self, folder: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        """Return a text about the first file whose sha256 is not the manifest's; else empty."""
        for name, entry in entries.items():
            if self._digest(f"{folder}/{name}", int(entry["bytes"])) != entry["sha256"]:
                return f"{name} does not have the sha256 of {MANIFEST}"
        return ""

    def _digest(self, name: str, size: int) -> str:
        found, offset = hashlib.sha256(), 0
        while offset < size:
            block = self._checkpoints.read_part(name, offset, min(BLOCK_BYTES, size - offset))
            if not block:
                break
            found.update(block)
            offset += len(block)
        return found.hexdigest()


def _entries(manifest: bytes) -> dict[str, Mapping[str, Any]]:
    files = cast(Mapping[str, Any], json.loads(manifest)["files"])
    return {str(name): dict(entry) for name, entry in files.items()}
