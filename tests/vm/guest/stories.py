"""The functions that the tests call in the guest. They return what they saw; the tests judge it."""

from __future__ import annotations

import time
from typing import Any

from tests.vm.guest import server
from tests.vm.guest.client import Client, Task, end_all
from tests.vm.guest.training import count_events, look, see_one, train, write_one

NAMES = ("east", "west")  # equally long, and so are the texts of run.lock
CLIENTS = dict[str, Client]()
READERS = list[Task]()
WAIT_SECONDS = 60.0  # the longest wait for the run's lock


def begin(options: str) -> dict[str, Any]:
    """Start the server and two clients, whose mounts have these options."""
    server.start()
    for number, name in enumerate(NAMES, 1):
        CLIENTS[name] = Client(name, number)
        CLIENTS[name].mount(server.EXPORTED, options)
    return {"mounted": [c.mounted() for c in CLIENTS.values()], "clients": server.clients()}


def end() -> None:
    """Remove what a failed story has left, so that the next one can begin."""
    end_all()
    READERS.clear()
    for client in CLIENTS.values():
        client.set_link("up")


def file_seen(name: str, writer: str, reader: str) -> dict[str, Any]:
    """Let one client look for a file, another one make it, and the first one look again.

    Return whether the file was there before, its text, how many seconds the writing took, and how
    many seconds later it was seen.
    """
    seen = CLIENTS[reader].start(see_one, name)
    before = seen.told()
    ((seconds, written),) = CLIENTS[writer].start(write_one, name).end()
    when, text = seen.told()
    seen.end()
    return {"before": before, "text": text, "write": seconds, "seen_after": when - written}


def events() -> list[str]:
    """Return the names of Python's audit events during a save, in order."""
    (names,) = CLIENTS["east"].start(count_events).end()
    return names


def begin_to_look() -> None:
    """Let both clients look at the checkpoints, until `end_to_look`."""
    READERS.extend(client.start(look) for client in CLIENTS.values())


def kill(writer: str, moment: int) -> dict[str, Any]:
    """Let a writer continue from the newest checkpoint, and kill it at the event `moment`."""
    task = CLIENTS[writer].start(train, WAIT_SECONDS, moment)
    return {"start": task.told(), "told": task.end_of_any_kind()}


def end_to_look() -> list[Any]:
    """End the looking, and return what each client has seen."""
    seen = [reader.stop()[0] for reader in READERS]
    READERS.clear()
    return seen


def restarts(times: int) -> dict[str, Any]:
    """Restart the server several times while a writer goes on, and return what was seen."""
    reader = CLIENTS["west"].start(look)
    writer = CLIENTS["east"].start(train, WAIT_SECONDS, 0)
    begin = writer.told()["start"] or 0
    saved, away = [writer.told()], list[float]()
    for _ in range(times):
        server.stop()
        since = time.monotonic()
        server.go_on()
        saved += [writer.told(), writer.told(), writer.told()]
        away.append(time.monotonic() - since)
    (other,) = CLIENTS["west"].start(train, 0.0, 0).end()
    saved += writer.stop()
    return {
        "begin": begin,
        "saved": saved,
        "seconds": away,
        "other": other,
        "reader": reader.stop()[0],
    }


def cut_off() -> dict[str, Any]:
    """Cut off a writer's machine, let another writer take over, and restore the first link.

    Return what the old writer, the new one and a reader have told.
    """
    reader = CLIENTS["west"].start(look)
    old = CLIENTS["east"].start(train, WAIT_SECONDS, 0)
    old.told()
    old.told()
    CLIENTS["east"].set_link("down")
    begin = time.monotonic()
    new = CLIENTS["west"].start(train, 10 * server.LEASE_SECONDS, 0)
    taken_over = [new.told(), new.told(), new.told()]
    seconds = time.monotonic() - begin
    CLIENTS["east"].set_link("up")
    back = time.monotonic()
    old_told = old.end()
    return {
        "seconds": seconds,
        "back_seconds": time.monotonic() - back,
        "old": old_told,
        "new": [*taken_over, *new.stop()],
        "reader": reader.stop()[0],
        "clients": server.clients(),
    }
