"""What was seen is kept, its age is known, and no look comes too soon."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.dashboard.kept import REST, RETRY_SECONDS, Kept, View
from infra.kube.errors import UnreachableError


@dataclass
class World:
    """A clock, the work that waits to be done, and what a look finds and needs."""

    now: float = 100.0
    work: list[Callable[[], None]] = field(default_factory=lambda: [])
    found: Any = "first"
    takes_seconds: float = 0.0
    looks: int = 0

    def look(self) -> Any:
        self.looks += 1
        self.now += self.takes_seconds
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def kept(self, least_seconds: float = 3.0) -> Kept:
        return Kept(self.look, least_seconds, lambda: self.now, self.work.append)

    def do(self) -> None:
        self.work.pop()()


def test_answer_comes_at_once_and_later_with_its_age() -> None:
    world = World()
    kept = world.kept()
    assert kept.see() == View(is_looking=True)
    world.do()
    world.now += 2
    assert kept.see() == View("first", 2.0)
    assert world.work == []  # too soon for another look


def test_many_who_ask_share_one_look() -> None:
    world = World()
    kept = world.kept()
    for _ in range(5):
        kept.see()
    assert len(world.work) == 1
    world.do()
    world.now += 3
    for _ in range(5):
        assert kept.see().content == "first"
    assert len(world.work) == 1


def test_look_that_takes_long_comes_less_often() -> None:
    world = World(takes_seconds=4.0)
    kept = world.kept()
    kept.see()
    world.do()
    world.now += REST * 4 - 1
    assert not kept.see().is_looking
    world.now += 1
    assert kept.see().is_looking


def test_failed_look_keeps_what_was_seen_and_says_why() -> None:
    world = World()
    kept = world.kept()
    kept.see()
    world.do()
    world.now, world.found = world.now + 5, UnreachableError("no route to the cluster")
    kept.see()
    world.do()
    assert kept.see() == View("first", 5.0, "no route to the cluster")
    world.now, world.found = world.now + 5, "second"
    kept.see()
    world.do()
    assert kept.see() == View("second", 0.0)


def test_failed_look_that_is_rare_is_tried_again_soon() -> None:
    world = World(found=UnreachableError("cut"))
    kept = world.kept(least_seconds=600)
    kept.see()
    world.do()
    world.now += RETRY_SECONDS - 1
    assert not kept.see().is_looking
    world.now += 1
    assert kept.see().is_looking


def test_mistake_of_ours_is_not_hidden_and_looks_go_on() -> None:
    world = World(found=KeyError("ours"))
    kept = world.kept()
    kept.see()
    with pytest.raises(KeyError):
        world.do()
    assert "the terminal says why" in kept.see().problem
    world.now += 10
    assert kept.see().is_looking
