"""The cache of built images: what killed processes leave in it, and processes that wait."""

import fcntl
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from infra.image import dependencies
from infra.image.dependencies import Sources, build_into_cache, layout_folder, locked
from infra.image.plan import ImagePlan
from infra.image.platforms import this_machine
from tests.unit.image.layouts import tiny_image, write_layout

PLAN = ImagePlan("localhost/a/b", "base:1", None, "deps", "code", b"")


def silent(_: str) -> None:
    """Say nothing."""


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "images").iterdir() if path.is_dir())


def build(cache: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool) -> None:
    """Build the dependencies with a stand-in, in a process of its own that may be killed."""

    def built(*arguments: Any) -> None:
        write_layout(arguments[-1], tiny_image())
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(dependencies, "choose_builder", lambda _: "stand-in")
    monkeypatch.setattr(dependencies, "build_layout", built)
    if (child := os.fork()) == 0:
        with locked(PLAN, cache, silent):
            build_into_cache(PLAN, Sources(cache, cache, "auto"), this_machine(), silent)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) == is_killed


def test_next_build_removes_killed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that is killed leaves gigabytes in the cache, and the login of the package index. The
    next build removes that, also if it is one of another image, as after a change of the
    requirements. It touches no build of another image that is at work.
    """
    build(tmp_path, monkeypatch, is_killed=True)
    assert len(folders(tmp_path)) == 1
    for other in ("other", "former", "never"):
        (tmp_path / "images" / f"building-{other}-1").mkdir()
    (tmp_path / "images" / "deps-former.lock").touch()
    with locked(replace(PLAN, deps_hash="other"), tmp_path, silent):
        build(tmp_path, monkeypatch, is_killed=False)
    layout = layout_folder(PLAN, tmp_path, this_machine())
    assert folders(tmp_path) == ["building-other-1", layout.name]


def test_wait_for_another_process_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has to wait for another one says so first, because a build takes minutes."""
    said, seen = list[str](), list[list[str]]()
    with locked(PLAN, tmp_path, said.append):
        assert said == []
    (file,) = (tmp_path / "images").iterdir()
    held = file.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    real = fcntl.flock

    def flock(file: IO[str], operation: int) -> None:
        if not operation & fcntl.LOCK_NB:  # the other process ends meanwhile
            seen.append(said.copy())
            held.close()
        real(file, operation)

    monkeypatch.setattr(dependencies.fcntl, "flock", flock)
    with locked(PLAN, tmp_path, said.append):
        assert seen == [["image: another process is at work on this image; waiting for it"]]
