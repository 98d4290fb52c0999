"""Ranks import their modules while Python's garbage collection, which would only cost time,
is off.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trainer import __main__ as command_line
from trainer.launch import spare
from trainer.launch.imports import without_garbage_collection

MAKES_MANY_OBJECTS = "made = [[number] for number in range(100_000)]"


@pytest.fixture
def searches() -> Iterator[list[str]]:
    """Yield a list that gets one text at each begin and each end of a garbage collection."""
    seen: list[str] = []

    def note(phase: str, _: object) -> None:
        seen.append(phase)

    gc.collect()  # otherwise one may be due at once, before anything is imported
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()
    gc.enable()


def test_spare_imports_without_any_search(
    searches: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare process imports without a garbage collection. Each one would go through all objects
    made so far, and find them in use.
    """
    (tmp_path / "many_objects.py").write_text(MAKES_MANY_OBJECTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(spare, "NEEDED", ("many_objects",))
    spare.import_what_is_needed()
    assert searches == []
    assert len(sys.modules.pop("many_objects").made) == 100_000


def test_rank_imports_without_any_search(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that was no spare process before imports with garbage collection off, and trains with
    it on.
    """
    is_on: list[bool] = []

    class Worker(ModuleType):
        @property
        def run_worker(self) -> object:
            is_on.append(gc.isenabled())
            return lambda _: is_on.append(gc.isenabled())

    monkeypatch.setitem(sys.modules, "trainer.launch.worker", Worker("worker"))
    command_line.main(["train", "--preset", "shakespeare-char-cpu"])
    assert is_on == [False, True]


def test_search_comes_back_after_an_error() -> None:
    """Garbage collection is on again after an import that failed, and leaves out the objects made
    so far.
    """
    with pytest.raises(ImportError), without_garbage_collection():
        raise ImportError
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
