"""A containerd that restarts meanwhile is waited for, whatever its version of ctr says about it."""

from pathlib import Path

import pytest

from infra.image import ensure as module
from infra.image import transfer
from infra.image.containerd import Containerd, ContainerdError
from infra.image.dependencies import Sources
from infra.image.ensure import Ensured, ensure
from infra.image.node import NodeError
from infra.image.plan import ImagePlan
from infra.image.transfer import has_restarted

SOCKET = "/run/k3s/containerd/containerd.sock"
REFUSED = f"dial unix {SOCKET}: connect: connection refused"


def ctr_that_fails(folder: Path, *, times: int, says: str) -> Containerd:
    """Return a containerd whose ctr fails so often with this text, and answers after that."""
    ctr = folder / "ctr"
    count = f"echo >>{folder}/calls; [ $(wc -l <{folder}/calls) -gt {times} ]"
    ctr.write_text(f"#!/bin/sh\n{count} || {{ echo '{says}' >&2; exit 1; }}\n")
    ctr.chmod(0o755)
    return Containerd([str(ctr)])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the attempts follow each other at once."""
    monkeypatch.setattr(transfer, "RESTART_PAUSE_SECONDS", 0)


@pytest.mark.parametrize(
    "says",
    [
        f'ctr: failed to dial "{SOCKET}": context deadline exceeded',
        f'ctr: connection error: desc = "transport: Error while dialing: {REFUSED}": unavailable',
        f"ctr: cannot access socket {SOCKET}: stat {SOCKET}: no such file or directory",
    ],
    ids=["ctr 1", "ctr 2", "ctr 2 without the socket"],
)
def test_containerd_of_each_version_is_awaited(tmp_path: Path, says: str) -> None:
    """A containerd that nobody reaches at first, and that answers later, has restarted. The ctr of
    containerd 2, which k3s has had since v1.31.6, says it in other words than the one of 1.x.
    """
    said: list[str] = []
    assert has_restarted(ctr_that_fails(tmp_path, times=3, says=says), said.append, "EOF")
    assert len(said) == 1


@pytest.mark.parametrize(
    "says",
    [
        f"ctr: cannot access socket {SOCKET}: stat {SOCKET}: permission denied",
        "ctr: no space left on device",
    ],
)
def test_other_errors_are_not_awaited(tmp_path: Path, says: str) -> None:
    """An error that does not go away is reported at once, and not after minutes."""
    said: list[str] = []
    assert not has_restarted(ctr_that_fails(tmp_path, times=3, says=says), said.append, "EOF")
    assert said == []


@pytest.mark.parametrize(
    "says",
    [
        "ctr: failed to copy: failed to send write: transport is closing: unavailable",
        "ctr: rpc error: code = Unavailable desc = error reading from server: EOF",
        f"ctr: while dialing: {REFUSED}",
    ],
)
def test_containerd_that_is_back_before_it_is_asked_gets_the_image(
    tmp_path: Path, says: str
) -> None:
    """The image is brought once more also if containerd answers again when it is asked whether it
    is away. Only the words of the import then show that containerd has ended meanwhile.
    """
    attempts = list[int]()

    def work() -> int:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise ContainerdError(says)
        return len(attempts)

    answers = ctr_that_fails(tmp_path, times=0, says="")
    assert transfer.in_spite_of_a_restart(answers, print, work) == 2


def test_error_without_a_restart_is_raised_at_once(tmp_path: Path) -> None:
    """An import that fails for another reason is not begun once more."""
    attempts = list[int]()

    def work() -> None:
        attempts.append(1)
        raise ContainerdError("ctr: no space left on device")

    with pytest.raises(ContainerdError, match="no space left"):
        transfer.in_spite_of_a_restart(ctr_that_fails(tmp_path, times=0, says=""), print, work)
    assert len(attempts) == 1


def test_build_at_the_node_is_imported_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that was built at the node (`imageBuildOn: node`) is brought to containerd after all
    if containerd restarts during its import.
    """
    imports: list[str] = []

    def bring(plan: ImagePlan, *_: object) -> Ensured:
        imports.append(plan.reference)
        if len(imports) == 1:  # From now on, containerd does not answer for a while.
            (tmp_path / "calls").write_text("")
            raise NodeError("at the node: ctr: error reading from server: EOF")
        return Ensured(plan.reference, "sha256:0", 1, built=True)

    monkeypatch.setattr(module, "_import", bring)
    containerd = ctr_that_fails(tmp_path, times=3, says=f"ctr: while dialing: {REFUSED}")
    (tmp_path / "calls").write_text("\n" * 3)
    plan = ImagePlan("images.example/trainer", "base:1", None, "d", "c", b"")
    sources = Sources(tmp_path, tmp_path / "cache", "auto", build_on="node")
    assert ensure(plan, containerd, sources, print).built
    assert len(imports) == 2
