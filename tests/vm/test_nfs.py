"""The volume on a real NFS server: the trainer's own code on two clients of it.

Linux' NFS 4.1 server and client, in a virtual machine with Debian's kernel, since the machine's
own may have neither. The mounts have the options of the storage `nfs`. What the virtual machine
cannot show: a server that loses its power, since the clients share its kernel; the speed of
anything, since QEMU emulates the processor; and torch, whose import takes more than a minute there.
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
# The client keeps for so long that a name is not there (acdirmax of nfs(5)).
MOST_SECONDS_UNSEEN = 60
CLIENT_SECONDS = 240  # of any part of a story, on a machine with much else to do


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With the server and the clients `east` and `west`."""
    ensure_packages(VIRTUAL_MACHINE_PACKAGES)
    made = Machine(debian(), tmp_path_factory.mktemp("vm"))
    try:
        seen = made.call(f"{STORIES}:begin", CLIENT_SECONDS, options=MOUNT_OPTIONS)
        say(f"started in {made.boot_seconds:.0f} s")
        for line in seen["mounted"]:
            assert " nfs4 " in line
            assert {"vers=4.1", "hard"} <= set(line.split()[3].split(","))
        # One lease each: were they one client for the server, it would know one name.
        assert [name in "".join(seen["clients"]) for name in ("east", "west")] == [True, True]
        assert len(seen["clients"]) == 2
        yield made
    finally:
        made.close()


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    """The same for each test, of which nothing runs on when it has ended."""
    yield booted
    booted.call(f"{STORIES}:end", CLIENT_SECONDS)


@pytest.mark.parametrize(("writer", "reader"), [("east", "west"), ("west", "east")])
def test_file_of_one_client_reaches_the_other(machine: Machine, writer: str, reader: str) -> None:
    """Written, synced and renamed on one machine; the other had looked before it was there."""
    words = {"name": f"from-{writer}", "writer": writer, "reader": reader}
    seen = machine.call(f"{STORIES}:file_seen", CLIENT_SECONDS, **words)
    say(f"written in {seen['write']:.2f} s, seen after {seen['seen_after']:.1f} s")
    assert not seen["before"]
    assert seen["text"] == f"from-{writer}"
    assert seen["seen_after"] < MOST_SECONDS_UNSEEN + CLIENT_SECONDS


def test_killed_writer_leaves_no_half_checkpoint_on_another_machine(machine: Machine) -> None:
    """A kill at every act of a save, and at drawn ones of later saves; writers on both machines."""
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
        if number:  # the one before it may have been killed when its last one was in place
            assert start["start"] in (before, before + 1)
            assert len(start["found"]) >= kept
        before = seen["told"][-1] if seen["told"] else start["start"] or 0
        kept = min(len(start["found"]), KEPT)
    readers = machine.call(f"{STORIES}:end_to_look", CLIENT_SECONDS)
    say(f"{len(moments)} kills, {before} checkpoints, removed while read: {gone(readers)}")
    for reader in readers:
        saw_only_whole_ones(reader)


def test_restarted_server_costs_time_and_nothing_else(machine: Machine) -> None:
    """A save that is under way goes on, and the run's lock is still the writer's."""
    seen = machine.call(f"{STORIES}:restarts", 2 * CLIENT_SECONDS, times=RESTARTS)
    say(f"until three more are saved: {', '.join(f'{s:.0f} s' for s in seen['seconds'])}")
    begin, saved = seen["begin"], seen["saved"]
    assert saved == [*range(begin + 1, begin + len(saved) + 1)]
    assert "on east holds /data/runs/one/run.lock" in seen["other"]["refused"]
    saw_only_whole_ones(seen["reader"])


def test_machine_that_was_cut_off_writes_nothing_after_its_successor(machine: Machine) -> None:
    """Its lock is free when its lease has ended; back again, it finds that the run is taken."""
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
    """How often a checkpoint was removed under the eyes of a reader, which is no fault."""
    return sum(len(reader["gone"]) for reader in readers)


def saw_only_whole_ones(reader: dict[str, Any]) -> None:
    """It took nothing for good that was not, saw no half one in place, and never an older one."""
    assert reader["wrong"] == []
    assert reader["partial"] == []
    assert reader["seen"] == sorted(reader["seen"])
    assert reader["seen"]
