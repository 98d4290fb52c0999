"""A map over processes that keeps the order and only a few items at a time."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from trainer.launch.exit_codes import RetryableError

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: Callable[[Any], Any] | None = None  # of a worker process


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
    """
    if workers == 1:
        work = make_work(*arguments)
        for item in items:
            yield item, work(item)
        return
    # A fresh interpreter: a fork would copy locks that threads of this process may hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (make_work, arguments))
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(_do, item)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool as error:
        raise RetryableError(
            "a worker process of the preparation ended unexpectedly (killed, or not enough "
            "memory?); the same command goes on where it was"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(make_work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    global _work
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = make_work(*arguments)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, and they would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    assert _work is not None
    return _work(item)
