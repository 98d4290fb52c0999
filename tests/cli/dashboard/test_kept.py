"""The dashboard keeps what it has seen of the cluster with its age, and does not ask too often."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.dashboard.kept import REST, RETRY_SECONDS, Kept, View
from infra.kube.errors import UnreachableError


@dataclass
class World:
    """A clock, the work that waits to be done, and what a query finds and how long it takes."""

    now: float = 100.0
    work: list[Callable[[], None]] = field(default_factory=lambda: [])
    found: Any = "first"
    takes_seconds: float = 0.0
    queries: int = 0

    def query(self) -> Any:
        self.queries += 1
        self.now += self.takes_seconds
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def kept(self, least_seconds: float = 3.0) -> Kept:
        """Return a `Kept` that queries this world, at most once in `least_seconds`."""
        return Kept(self.query, least_seconds, lambda: self.now, self.work.append)

    def do(self) -> None:
        """Do the work that was asked for last."""
        self.work.pop()()


def test_answer_comes_at_once_and_later_with_its_age() -> None:
    """The first answer comes before the first query and is empty. A later one has what was seen,
    with its age.
    """
    world = World()
    kept = world.kept()
    assert kept.see() == View(is_querying=True)
    world.do()
    world.now += 2
    assert kept.see() == View("first", 2.0)
    assert world.work == []  # too soon for another query


def test_many_who_ask_share_one_query() -> None:
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


def test_query_that_takes_long_comes_less_often() -> None:
    """After a query that took long, the next one waits for REST times as long."""
    world = World(takes_seconds=4.0)
    kept = world.kept()
    kept.see()
    world.do()
    world.now += REST * 4 - 1
    assert not kept.see().is_querying
    world.now += 1
    assert kept.see().is_querying


def test_failed_query_keeps_what_was_seen_and_says_why() -> None:
    """After a query that failed, the answer is what was seen before, its age and the reason."""
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


def test_failed_query_that_is_rare_is_tried_again_soon() -> None:
    """A failed query is tried again after RETRY_SECONDS, also where queries are rare."""
    world = World(found=UnreachableError("cut"))
    kept = world.kept(least_seconds=600)
    kept.see()
    world.do()
    world.now += RETRY_SECONDS - 1
    assert not kept.see().is_querying
    world.now += 1
    assert kept.see().is_querying


def test_mistake_of_ours_is_not_hidden_and_queries_go_on() -> None:
    """A fault of the program in a query is raised to the terminal, the page says so, and later
    queries go on.
    """
    world = World(found=KeyError("ours"))
    kept = world.kept()
    kept.see()
    with pytest.raises(KeyError):
        world.do()
    assert "the terminal says why" in kept.see().problem
    world.now += 10
    assert kept.see().is_querying
