"""The volume of a claim that was deleted by hand can be used by the claim that is made again."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulumi
import pytest

from infra import task_in_hook
from tests.unit.stacks import deploy
from tests.unit.storages.other_storages import CLASS, EXISTING, NFS


@pytest.mark.parametrize(("changes", "has_volume"), [({}, True), (NFS, True), (CLASS, False)])
def test_engine_frees_volume_before_claim(
    changes: dict[str, object], has_volume: bool, tmp_path: Path
) -> None:
    """Before the engine makes or updates the claim, a hook frees its volume; otherwise the claim
    would stay Pending for ever. The volume of a storage class goes with its claim, so it has no
    hook.
    """
    deployment = deploy("sandbox", tmp_path, changes)
    hooks = deployment.one("data-claim").request.hooks
    names = ["data-volume-freed"] if has_volume else []
    assert [*hooks.before_create] == [*hooks.before_update] == names
    assert [each for each in deployment.hooks if each.startswith("data-")] == names


def test_claim_of_somebody_else_has_no_hook(tmp_path: Path) -> None:
    """An existing claim, which the stack does not make, has no hook that frees a volume."""
    deployment = deploy("sandbox", tmp_path, EXISTING)
    assert [each for each in deployment.hooks if each.startswith("data-")] == []


def test_hook_runs_task_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook runs a task and gives it its job by standard input."""
    lines = list[str]()
    program = "import sys; print(sys.argv[1:], flush=True); print(sys.stdin.read(), flush=True)"
    monkeypatch.setattr(task_in_hook, "PROGRAM", ("-c", program))
    monkeypatch.setattr(pulumi.log, "info", lines.append)
    job = {"owner": "o", "volume": "disttrain-pv-1"}
    with ThreadPoolExecutor(1) as thread:  # the main thread would be left without an event loop
        thread.submit(asyncio.run, task_in_hook.run_in_hook("free-volume", job)).result()
    words, given = lines
    assert words == "['free-volume', 'create']"
    assert json.loads(given) == job
