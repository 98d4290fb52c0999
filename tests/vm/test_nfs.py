"""The volume on a real NFS server: the trainer's own code runs on two clients of it.

Server and client are Linux' own, with NFS 4.1, in a virtual machine with Debian's kernel, because
the kernel of this machine may have neither. The mounts have the options of the storage `nfs`. The
virtual machine cannot show a server that loses its power (the clients share its kernel), the speed
of anything (QEMU emulates the processor), or torch (its import takes more than a minute there).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from infra.storages.nfs import MOUNT_OPTIONS
from sandbox.packages import VIRTUAL_MACHINE_PACKAGES, ensure_packages
from sandbox.say import say
from tests.vm.debian import debian
from tests.vm.guest.training import KEPT
from tests.vm.machine import Machine

pytestmark = pytest.mark.timeout(1800)
STORIES = "tests.vm.guest.stories"
DRAWN_KILLS, RESTARTS = 10, 2
# How long a client may remember that a name does not exist (acdirmax of nfs(5)).
MOST_SECONDS_UNSEEN = 60
CLIENT_SECONDS = 240  # the limit for any part of a story, on a busy machine


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield a virtual machine with the server and the clients `east` and `west`, which all tests
    share.
    """
    ensure_packages(VIRTUAL_MACHINE_PACKAGES)
    made = Machine(debian(), tmp_path_factory.mktemp("vm"))
    try:
        seen = made.call(f"{STORIES}:begin", CLIENT_SECONDS, options=MOUNT_OPTIONS)
        say(f"started in {made.boot_seconds:.0f} s")
        for line in seen["mounted"]:
            assert " nfs4 " in line
            assert {"vers=4.1", "hard"} <= set(line.split()[3].split(","))
        # Each has a lease of its own. If they were one client, the server would know one name.
        assert [name in "".join(seen["clients"]) for name in ("east", "west")] == [True, True]
        assert len(seen["clients"]) == 2
        yield made
    finally:
        made.close()


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    """Yield the virtual machine, and end all processes that the test has left in it afterwards."""
    yield booted
    booted.call(f"{STORIES}:end", CLIENT_SECONDS)


@pytest.mark.parametrize(("writer", "reader"), [("east", "west"), ("west", "east")])
def test_file_of_one_client_reaches_the_other(machine: Machine, writer: str, reader: str) -> None:
    """A file that one machine writes, syncs and renames appears on the other machine, with its
    text.

    The other machine has looked for the file before, so that its cache says that there is none.
    """
    words = {"name": f"from-{writer}", "writer": writer, "reader": reader}
    seen = machine.call(f"{STORIES}:file_seen", CLIENT_SECONDS, **words)
    say(f"written in {seen['write']:.2f} s, seen after {seen['seen_after']:.1f} s")
    assert not seen["before"]
    assert seen["text"] == f"from-{writer}"
    assert seen["seen_after"] < 2 * MOST_SECONDS_UNSEEN  # twice, as the machine may be busy


def test_killed_writer_leaves_no_half_checkpoint_on_another_machine(machine: Machine) -> None:
    """No machine ever takes an incomplete checkpoint for a good one, whenever a writer is killed.

    The kills are at every file operation of a save, and at random ones of later saves. The writers
    are on both machines in turn.
    """
    events = machine.call(f"{STORIES}:events", CLIENT_SECONDS)
    drawn = random.Random(os.environ["DISTTRAIN_TEST_SEED"])
    moments = [*range(1, len(events) + 1)]
    moments += [drawn.randint(len(events), 3 * len(events)) for _ in range(DRAWN_KILLS)]
    drawn.shuffle(moments)
    machine.call(f"{STORIES}:begin_to_look", CLIENT_SECONDS)
    before, kept = 0, 0
    for number, moment in enumerate(moments):
        writer = ("east", "west")[number % 2]
        seen = machine.call(f"{STORIES}:kill", CLIENT_SECONDS, writer=writer, moment=moment)
        start = seen["start"]
        assert start["said"] == [], "a checkpoint stood in its place and could not be used"
        assert all(name.startswith("step-") for name in start["found"]), start
        if number:  # The writer before may have been killed just after its last save was complete.
            assert start["start"] in (before, before + 1)
            assert len(start["found"]) >= kept
        before = seen["told"][-1] if seen["told"] else start["start"] or 0
        kept = min(len(start["found"]), KEPT)
    readers = machine.call(f"{STORIES}:end_to_look", CLIENT_SECONDS)
    say(f"{len(moments)} kills, {before} checkpoints, removed while read: {gone(readers)}")
    for reader in readers:
        saw_only_whole_ones(reader)


def test_restarted_server_costs_time_and_nothing_else(machine: Machine) -> None:
    """After a restart of the server, the save that was under way goes on, and no step is lost.

    The lock of the run still belongs to the writer.
    """
    seen = machine.call(f"{STORIES}:restarts", 2 * CLIENT_SECONDS, times=RESTARTS)
    say(f"until three more are saved: {', '.join(f'{s:.0f} s' for s in seen['seconds'])}")
    begin, saved = seen["begin"], seen["saved"]
    assert saved == [*range(begin + 1, begin + len(saved) + 1)]
    assert "on east holds /data/runs/one/run.lock" in seen["other"]["refused"]
    saw_only_whole_ones(seen["reader"])


def test_machine_that_was_cut_off_writes_nothing_after_its_successor(machine: Machine) -> None:
    """A machine that was cut off saves nothing any more once another machine has taken over its
    run.

    The lock becomes free when the lease of the old machine ends. When the old machine is back, it
    finds that the run is taken, and stops.
    """
    seen = machine.call(f"{STORIES}:cut_off", 2 * CLIENT_SECONDS)
    say(f"taken over after {seen['seconds']:.0f} s; the old one: {seen['old']}")
    *others, end = seen["old"]
    assert "another process has taken over this run" in end["refused"]
    assert all("failed" in told for told in others if not isinstance(told, int))
    start, *steps = seen["new"]
    assert start["said"] == []
    assert steps == [*range(start["start"] + 1, start["start"] + len(steps) + 1)]
    saw_only_whole_ones(seen["reader"])


def gone(readers: list[dict[str, Any]]) -> int:
    """Return how often a checkpoint was removed while a reader read it, which is no fault."""
    return sum(len(reader["gone"]) for reader in readers)


def saw_only_whole_ones(reader: dict[str, Any]) -> None:
    """Check that a reader has only ever accepted complete checkpoints, and never went back to an
    older one.
    """
    assert reader["wrong"] == []
    assert reader["partial"] == []
    assert reader["seen"] == sorted(reader["seen"])
    assert reader["seen"]
