"""Brings the missing bytes of files, by several streams at once, and goes on after cuts."""

import queue
import threading
import time
from collections.abc import Callable, Sequence

from cli.fetch.batches import Piece, batches
from cli.fetch.partial import PartialFile
from cli.fetch.progress import Progress
from infra.kube.api_server.exec_stream import Sink
from infra.kube.errors import TaskError, UnreachableError

MOST_CUTS = 8  # one after the other without a new byte
TICK_SECONDS = 0.2
END_SECONDS = 2.0

Send = Callable[[Sequence[Piece], Sink], None]
"""Has the source send pieces, one after the other; what it writes goes into the sink.

Raises UnreachableError: the connection was cut; GoneError: a file is not there any more.
"""


class GoneError(Exception):
    """A file was removed from the source, or became shorter, while it was read."""


class DamagedError(Exception):
    """What arrived is not what it must be."""

    def __init__(self, file: PartialFile, found: str) -> None:
        """Keep the file, and the sha256 that was found."""
        super().__init__(f"{file.target.name} has sha256 {found}, not {file.sha256}")
        self.file = file


class _StoppedError(Exception):
    """Another stream has failed, or the user has ended it all."""


class Transfer:
    """Files that come at the same time.

    Args:
        files: with what has arrived of them.
        open_send: makes the `Send` of one stream; called once in the thread of each.
        streams: how many.
        progress: counts the bytes and tells.
        say: told of cuts.
    """

    def __init__(
        self,
        files: Sequence[PartialFile],
        open_send: Callable[[], Send],
        streams: int,
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self._files, self._open_send, self._streams = files, open_send, streams
        self._progress, self._say = progress, say
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._batches: queue.SimpleQueue[list[Piece]] = queue.SimpleQueue()

    def run(self) -> None:
        """Return when all files are in their places and right; the partial ones stay otherwise.

        Raises:
            DamagedError: a file has other contents than it must; what arrived of it was removed.
            GoneError: a file was removed from the source.
            TaskError: the connection is cut again and again.
            OSError: a file cannot be written here.
        """
        pieces = [
            Piece(index, number, *file.missing(number))
            for index, file in enumerate(self._files)
            for number in file.ranges()
        ]
        for batch in batches(pieces):
            self._batches.put(batch)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._streams)]
        try:
            for file in self._files:
                if not file.ranges():  # all of it arrived before an earlier end of this program
                    self._finish(file)
            for thread in threads:
                thread.start()
            while alive := [thread for thread in threads if thread.is_alive()]:
                alive[0].join(TICK_SECONDS)
                self._progress.tell()
        finally:
            self._stop.set()
            self._progress.end()
            self._close(threads)
        if self._failure:
            raise self._failure

    def _close(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for the streams, and close the files if all have ended.

        A stream that hears nothing does not see that all is over. The files stay open then: it
        could still write, and the system soon gives the number of a closed file to another file.
        """
        end = time.monotonic() + END_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            for file in self._files:
                file.close()

    def _work(self) -> None:
        try:
            send = self._open_send()
            while not self._stop.is_set():
                self._bring(self._batches.get_nowait(), send)
        except queue.Empty:
            return
        except _StoppedError:
            return
        except BaseException as failure:
            with self._lock:
                self._failure = self._failure or failure
            self._stop.set()

    def _bring(self, batch: list[Piece], send: Send) -> None:
        cuts = 0
        while pieces := self._rests(batch):
            before = sum(piece.count for piece in pieces)
            try:
                send(pieces, _Landing(self._files, pieces, self._progress, self._stop).take)
                if self._rests(batch):
                    raise UnreachableError("fewer bytes arrived than were asked for")
            except UnreachableError as reason:
                is_forward = sum(piece.count for piece in self._rests(batch)) < before
                cuts = 0 if is_forward else cuts + 1
                if cuts > MOST_CUTS:
                    raise TaskError(
                        f"the connection was cut {cuts} times without a new byte ({reason}); what "
                        "has arrived is kept, and the same command continues there"
                    ) from None
                self._progress.end()  # its line on a terminal gives way
                self._say(f"{reason}; it continues with what has arrived")
                if self._stop.wait(min(cuts, 5)):
                    raise _StoppedError from None
        for index in dict.fromkeys(piece.file for piece in batch):
            self._finish(self._files[index])

    def _rests(self, batch: list[Piece]) -> list[Piece]:
        rests = (Piece(p.file, p.number, *self._files[p.file].missing(p.number)) for p in batch)
        return [piece for piece in rests if piece.count]

    def _finish(self, file: PartialFile) -> None:
        """Whoever brought the last bytes of a file checks it."""
        with self._lock:
            if file.ranges() or file.is_checked:
                return
            file.is_checked = True
        found = file.finish()
        if found != file.sha256:
            raise DamagedError(file, found)


class _Landing:
    """Puts a stream of bytes into the pieces that were asked for, in their order."""

    def __init__(
        self,
        files: Sequence[PartialFile],
        pieces: Sequence[Piece],
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self._files, self._progress, self._stop = files, progress, stop
        self._pieces = list(reversed(pieces))
        self._left = pieces[0].count

    def take(self, block: memoryview) -> None:
        """Raises UnreachableError: more comes than was asked for."""
        if self._stop.is_set():
            raise _StoppedError
        while block:
            if not self._pieces:
                raise UnreachableError("more bytes arrived than were asked for")
            piece = self._pieces[-1]
            part = block[: self._left]
            self._files[piece.file].write(piece.number, part)
            self._progress.add(len(part))
            self._left -= len(part)
            block = block[len(part) :]
            if not self._left:
                self._pieces.pop()
                self._left = self._pieces[-1].count if self._pieces else 0
