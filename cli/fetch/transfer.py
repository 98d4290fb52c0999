"""Transfers the missing bytes of files in several streams, and continues after cut connections."""

import queue
import threading
import time
from collections.abc import Callable, Sequence

from cli.fetch.batches import Piece, batches
from cli.fetch.partial import PartialFile
from cli.fetch.progress import Progress
from infra.command_line import Say
from infra.kube.api_server.exec_stream import Sink
from infra.kube.errors import TaskError, UnreachableError

MOST_CUTS = 8  # cut connections in a row without a new byte
TICK_SECONDS = 0.2
END_SECONDS = 2.0

Send = Callable[[Sequence[Piece], Sink], None]
"""Lets the source send pieces, one after the other; their bytes go into the sink.

It raises UnreachableError if the connection was cut, and GoneError if a file is gone.
"""


class GoneError(Exception):
    """A file was removed from the source, or became shorter, while it was read."""


class DamagedError(Exception):
    """The content of a file that has arrived does not have the expected sha256."""

    def __init__(self, file: PartialFile, found: str) -> None:
        """Keep the file, and the sha256 that was found."""
        super().__init__(f"{file.target.name} has sha256 {found}, not {file.sha256}")
        self.file = file


class _StoppedError(Exception):
    """The transfer ends: another stream has failed, or the user has ended the program."""


class Transfer:
    """A transfer of several files at the same time.

    Args:
        files: the files, which know how much of them has arrived.
        open_send: makes the `Send` of a stream; it is called once in the thread of each stream.
        streams: the number of streams.
        progress: counts the bytes and shows the progress.
        say: prints a line about a cut connection.
    """

    def __init__(
        self,
        files: Sequence[PartialFile],
        open_send: Callable[[], Send],
        streams: int,
        progress: Progress,
        say: Say,
    ) -> None:
        self._files, self._open_send, self._streams = files, open_send, streams
        self._progress, self._say = progress, say
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._batches: queue.SimpleQueue[list[Piece]] = queue.SimpleQueue()

    def run(self) -> None:
        """Transfer the files, and return once all have their final names and are verified.

        After an error, the partial files stay, so that the next transfer continues with them.

        Raises:
            DamagedError: a file has a wrong sha256; all that had arrived of it was removed.
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
                if not file.ranges():  # an earlier fetch ended before it finished the file
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
        """Wait for the streams at most END_SECONDS, and close the files if all have ended.

        A stream that waits for bytes does not notice the end. The files then stay open, because it
        could still write, and the system may give the number of a closed file to another file.
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
                self._progress.end()  # clears the line about the progress on a terminal
                self._say(f"{reason}; it continues with what has arrived")
                if self._stop.wait(min(cuts, 5)):
                    raise _StoppedError from None
        for index in dict.fromkeys(piece.file for piece in batch):
            self._finish(self._files[index])

    def _rests(self, batch: list[Piece]) -> list[Piece]:
        rests = (Piece(p.file, p.number, *self._files[p.file].missing(p.number)) for p in batch)
        return [piece for piece in rests if piece.count]

    def _finish(self, file: PartialFile) -> None:
        """Finish a file if all its bytes have arrived and no other thread has taken it."""
        with self._lock:
            if file.ranges() or file.is_checked:
                return
            file.is_checked = True
        found = file.finish()
        if found != file.sha256:
            raise DamagedError(file, found)


class _Landing:
    """Writes a stream of bytes into the requested pieces, in their order."""

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
        """Write the next block. Raises UnreachableError if more bytes come than were requested."""
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
