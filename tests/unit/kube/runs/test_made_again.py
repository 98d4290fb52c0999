"""An unchanged run whose workload is gone leaves other runs alone until the engine makes it again.

The engine makes the workload only if it knows that it is gone, as after `pulumi refresh`.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pulumi
import pytest

from infra import task_in_hook
from infra.kube.errors import TaskError
from infra.kube.names import SUSPENDED_BY_ANNOTATION
from infra.kube.runs import await_ready
from infra.kube.runs.hand_over import LEFT_ALONE
from infra.run import workload_hooks
from infra.workloads import WORKLOADS
from tests.unit.kube.runs.gone_run import (
    AWAIT,
    GONE,
    OTHER,
    Server,
    api_of,
    hand_over_of,
    job,
)
from tests.unit.stacks import deploy

FAILED = {"state": "failed", "words": "the loss is nan", "other": OTHER}


def suspends(server: Server) -> bool:
    """Whether the other run was asked to make room."""
    by = {"metadata": {"annotations": {SUSPENDED_BY_ANNOTATION: GONE.stack}}}
    return server.changes_of_other == [by, OTHER.suspend]


@pytest.mark.parametrize("ttl", [GONE.ttl, None])
@pytest.mark.parametrize("when_busy", ["replace", "wait", "refuse"])
def test_bare_up_fails_and_leaves_other_runs_alone(
    ttl: object, when_busy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pulumi up` fails if the workload of an unchanged run is gone, and neither suspends nor waits
    for other runs. It does not matter whether the workload went after its time or somebody has
    deleted it.
    """
    server = Server(replace(GONE, ttl=ttl), **FAILED)
    hand_over_of(server, when_busy=when_busy, ttl=vars(ttl) if ttl else {})
    assert f"Job train-indexed is not there, {LEFT_ALONE}" in capsys.readouterr().out
    assert server.changes_of_other == []
    assert server.now().since == GONE.since
    with pytest.raises(TaskError, match="training failed: "):
        await_ready.create(job(**AWAIT), api_of(server))


def test_workload_that_is_made_again_gets_its_place() -> None:
    """A run whose workload the engine makes again takes the place of another run, and its record no
    longer says how it ended before.
    """
    server = Server(GONE, **FAILED)
    hand_over_of(server, made_again=True)
    assert suspends(server)
    assert server.now().how_ended == ""
    assert server.now().since > GONE.since


def test_refused_place_ends_it_before_the_workload_is_made() -> None:
    """With `whenBusy: refuse`, the workload is not made again while another run trains."""
    server = Server(GONE, **FAILED)
    with pytest.raises(TaskError, match="whenBusy: refuse"):
        hand_over_of(server, made_again=True, when_busy="refuse")
    assert server.changes_of_other == []


def test_finished_run_that_is_made_again_suspends_nobody() -> None:
    """A finished run that is made again suspends no other run."""
    server = Server(GONE, "finished", "all done", other=OTHER)
    hand_over_of(server, made_again=True)
    assert server.changes_of_other == []


def test_changed_run_takes_its_place_at_once() -> None:
    """A changed run takes its place at once, because the engine makes a workload for it in any
    case.
    """
    server = Server(GONE, **FAILED)
    hand_over_of(server, revision="longer")
    assert suspends(server)


@pytest.mark.parametrize("topology", WORKLOADS)
def test_engine_asks_before_it_makes_the_workload(topology: str, tmp_path: Path) -> None:
    """The hand-over is repeated before the engine makes any object of the workload, such as its
    Service. So nothing is made if the run is refused its place.
    """
    stack = "sandbox" if topology == "single-pod" else "sandbox-multipod"
    deployment = deploy(stack, tmp_path, {"topology": topology})
    asked = [
        each
        for each in deployment.resources
        if "training-made-again" in each.request.hooks.before_create
    ]
    assert asked == [
        each
        for each in deployment.resources
        if each.type.startswith("kubernetes:") and each.name.startswith("training-")
    ]
    assert asked[-1].inputs["kind"] == WORKLOADS[topology].kind
    for each in asked[:-1]:
        assert [*each.request.hooks.before_create] == ["training-made-again"]
    waits = ["training-accepted"] if WORKLOADS[topology].refused_at_first else []
    assert [*asked[-1].request.hooks.before_create] == [
        "training-made-again",
        "training-replaced",
        *waits,
    ]


def hooked(monkeypatch: pytest.MonkeyPatch, said: str, ending: str = "") -> list[str]:
    """Return the lines that the hook shows. Its task is a stand-in that prints its job and then
    runs `ending`.
    """
    lines = list[str]()
    program = f"import os, sys; print(sys.stdin.read(), flush=True); {ending}"
    monkeypatch.setattr(task_in_hook, "PROGRAM", ("-c", program))
    monkeypatch.setattr(pulumi.log, "info", lines.append)
    repeated = workload_hooks.hand_over_if_left_alone(said, json.dumps({"owner": "o"}))
    with ThreadPoolExecutor(1) as thread:  # keeps the main thread's event loop
        thread.submit(asyncio.run, repeated).result()
    return lines


def test_hook_repeats_the_task_that_has_left_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook repeats a hand-over that has left other runs alone, with `made_again`. It does
    nothing after any other hand-over.
    """
    (given,) = hooked(monkeypatch, f"something\nJob train-indexed is not there, {LEFT_ALONE}\n")
    assert json.loads(given) == {"owner": "o", "made_again": True}
    assert hooked(monkeypatch, "the run of stack dev may start") == []


def test_hook_repeats_it_once_for_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook repeats the hand-over only before the first object of the workload. If the repeated
    hand-over fails, the next object repeats it again.
    """

    async def text() -> str:
        return LEFT_ALONE

    calls = list[str]()

    async def repeat(said: str, _: str) -> None:
        calls.append(said)
        if len(calls) == 1:
            raise RuntimeError("refused")

    monkeypatch.setattr(workload_hooks, "hand_over_if_left_alone", repeat)
    output = SimpleNamespace(future=text)
    before = workload_hooks.once(SimpleNamespace(stdout=output, stdin=output))  # pyright: ignore

    async def make_three() -> None:
        with pytest.raises(RuntimeError, match="refused"):
            await before(None)  # pyright: ignore
        for _ in range(2):
            await before(None)  # pyright: ignore

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make_three()).result()
    assert calls == [LEFT_ALONE, LEFT_ALONE]


def test_task_that_fails_ends_the_creation_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated hand-over that fails stops the engine, with the reason that the task has
    printed.
    """
    with pytest.raises(RuntimeError, match=r"^it is refused:\n  a way out$"):
        hooked(
            monkeypatch, LEFT_ALONE, "sys.exit(print('error: it is refused:\\n  a way out') or 1)"
        )
    with pytest.raises(RuntimeError, match="hand-over was ended from outside"):
        hooked(monkeypatch, LEFT_ALONE, "os.kill(os.getpid(), 9)")
