"""A map over processes that keeps the order and only a few items at a time.

Each process has a pipe of its own. With one pipe for all, as `concurrent.futures` has it, a process
that is killed while it sends a result leaves half of it there, and the reader waits for ever.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from trainer.launch.exit_codes import RetryableError

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_ITEM = -1
_AHEAD = 2
"""Items that a process has at one time: the one it works on, and the next one."""


def ordered_map(
    make_work: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    workers: int,
) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in the order of the items.

    Args:
        make_work: called once in each process; returns the function of one item.
        arguments: of `make_work`.
        items: read only as far ahead as keeps all workers busy.
        workers: number of processes; with 1 the work is done in this one.

    Raises:
        RetryableError: a worker process was killed.
        Exception: what `make_work` or its function has raised, with the worker's traceback.
    """
    if workers == 1:
        work = make_work(*arguments)
        for item in items:
            yield item, work(item)
        return
    pool = [Worker(make_work, arguments) for _ in range(workers)]
    try:
        yield from _map(pool, items)
    except _EndedError as error:
        raise RetryableError(
            "a worker process of the preparation ended unexpectedly (killed, or not enough "
            "memory?); the same command goes on where it was"
        ) from error
    finally:
        for worker in pool:
            worker.close()


class _EndedError(Exception):
    """A process has ended before its work."""


class Worker:
    """A process, and the numbers of the items that it has."""

    def __init__(self, make_work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        # A fresh interpreter: a fork would copy locks that threads of this process may hold.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, make_work, arguments), daemon=True
        )
        self.process.start()
        theirs.close()  # so that the pipe ends with the process
        self.items = 0

    def send(self, number: int, item: Any) -> None:
        """Give it an item. Raises _EndedError."""
        try:
            self.connection.send((number, item))
        except OSError as error:
            raise _EndedError from error
        self.items += 1

    def receive(self) -> tuple[int, Any, Exception | None]:
        """Number, result and error of an item. Raises _EndedError, and what `make_work` raised."""
        try:
            number, result, error = self.connection.recv()
        except (EOFError, OSError) as ended:
            raise _EndedError from ended
        if number == _NO_ITEM:
            raise error
        self.items -= 1
        return number, result, error

    def close(self) -> None:
        """End the process, whatever it is at."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def _map(pool: list[Worker], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Raises _EndedError, and what the items or the work raise."""
    numbered = enumerate(items)
    waiting: dict[int, Any] = {}  # items that have no result yet, or whose turn has not come
    results: dict[int, tuple[Any, Exception | None]] = {}
    turn, is_exhausted = 0, False
    while True:
        while not is_exhausted and len(waiting) <= _AHEAD * len(pool):
            worker = min(pool, key=lambda each: each.items)
            if worker.items >= _AHEAD:
                break
            number, item = next(numbered, (_NO_ITEM, None))
            if number == _NO_ITEM:
                is_exhausted = True
                break
            waiting[number] = item
            worker.send(number, item)
        if turn in results:
            result, error = results.pop(turn)
            if error is not None:
                raise error
            yield waiting.pop(turn), result
            turn += 1
        elif waiting:
            _receive(pool, results)
        else:
            return


def _receive(pool: list[Worker], results: dict[int, tuple[Any, Exception | None]]) -> None:
    """Wait until at least one process has something to say."""
    by_connection = {worker.connection: worker for worker in pool}
    for ready in multiprocessing.connection.wait(list(by_connection)):
        assert isinstance(ready, Connection)
        number, result, error = by_connection[ready].receive()
        results[number] = result, error


def _serve(
    connection: Connection, make_work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """What a process does: send the result of each item that comes, until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; the parent ends it
    given: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, given), daemon=True).start()
    try:
        try:
            work = make_work(*arguments)
        except Exception as error:
            connection.send((_NO_ITEM, None, _told(error)))
            while True:  # a process that ends would look like one that was killed
                given.get()
        while True:
            number, item = given.get()
            try:
                answer = number, work(item), None
            except Exception as error:
                answer = number, None, _told(error)
            connection.send(answer)
    except ConnectionError:
        os._exit(1)  # the parent has gone


def _told(error: Exception) -> Exception:
    """The error with its traceback as a note, since a traceback cannot be sent."""
    error.add_note(f"In a worker process:\n{traceback.format_exc()}")
    return error


def _read(connection: Connection, given: queue.SimpleQueue[tuple[int, Any]]) -> None:
    """Take items as they come: the parent must not wait with one while results wait for it.

    A parent that is killed cannot end its workers. Then the pipe ends, and this process with it.
    """
    while True:
        try:
            given.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)
