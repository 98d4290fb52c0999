"""Applies a function to items in several processes, keeping their order and few items in memory.

Each process has a pipe of its own. `concurrent.futures` has one pipe for all processes: if a
process is killed while it sends a result, half of the result stays in the pipe, and the reader
waits forever.
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
"""The most items that a process has at one time: the item that it works on, and the next one."""


def ordered_map(
    make_work: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    workers: int,
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with its result, in the order of the items.

    Args:
        make_work: Is called once in each process. It returns the function to apply to an item.
        arguments: The arguments of `make_work`.
        items: The items. They are read only as far ahead as needed to keep all workers busy.
        workers: The number of processes. With 1 the work is done in this process.

    Raises:
        RetryableError: A worker process was killed.
        Exception: The error that `make_work` or its function raised, with the worker's traceback.
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
    """A worker process has ended before its work was done."""


class Worker:
    """A worker process, its pipe, and the number of items that it has."""

    def __init__(self, make_work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        # The process is a fresh interpreter. A fork would copy locks that threads may hold.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, make_work, arguments), daemon=True
        )
        self.process.start()
        theirs.close()  # Then the pipe ends when the process ends.
        self.items = 0

    def send(self, number: int, item: Any) -> None:
        """Give the process an item. Raises _EndedError if the process has ended."""
        try:
            self.connection.send((number, item))
        except OSError as error:
            raise _EndedError from error
        self.items += 1

    def receive(self) -> tuple[int, Any, Exception | None]:
        """Return the number, result and error of an item.

        Raises:
            _EndedError: The process has ended.
            Exception: The error that `make_work` raised.
        """
        try:
            number, result, error = self.connection.recv()
        except (EOFError, OSError) as ended:
            raise _EndedError from ended
        if number == _NO_ITEM:
            raise error
        self.items -= 1
        return number, result, error

    def close(self) -> None:
        """Kill the process, also in the middle of its work."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def _map(pool: list[Worker], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each item with its result.

    Raises _EndedError, and the errors of the items and of the work.
    """
    numbered = enumerate(items)
    waiting: dict[int, Any] = {}  # Items are here until they are yielded.
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
    """Wait until at least one process has sent a result, and receive what has come."""
    by_connection = {worker.connection: worker for worker in pool}
    for ready in multiprocessing.connection.wait(list(by_connection)):
        assert isinstance(ready, Connection)
        number, result, error = by_connection[ready].receive()
        results[number] = result, error


def _serve(
    connection: Connection, make_work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """Send back the result of each received item, until this worker process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C and ends this.
    given: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, given), daemon=True).start()
    try:
        try:
            work = make_work(*arguments)
        except Exception as error:
            connection.send((_NO_ITEM, None, _told(error)))
            while True:  # If the process ended, it would look as if it was killed.
                given.get()
        while True:
            number, item = given.get()
            try:
                answer = number, work(item), None
            except Exception as error:
                answer = number, None, _told(error)
            connection.send(answer)
    except ConnectionError:
        os._exit(1)  # The parent has ended.


def _told(error: Exception) -> Exception:
    """Add the traceback to the error as a note, because a traceback cannot be sent."""
    error.add_note(f"In a worker process:\n{traceback.format_exc()}")
    return error


def _read(connection: Connection, given: queue.SimpleQueue[tuple[int, Any]]) -> None:
    """Take items as soon as they come.

    Otherwise the parent could block while it sends an item, and this process while it sends a
    result. A parent that is killed cannot end its workers. Then the pipe ends, and this process
    ends itself.
    """
    while True:
        try:
            given.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)
