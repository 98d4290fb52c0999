"""What `./disttrain goodput` prints. The events that the pod would read are given here."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.__main__ import main
from cli.goodput import command, run_events
from cli.stack_outputs import RunPlace
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import Ended
from infra.kube.errors import TaskError
from infra.kube.files.task_pod import START_SECONDS, TaskPod
from tests.trainer.events.stories import Story
from trainer.events.command import PRICE_VARIABLE
from trainer.events.event import Events
from trainer.events.show import WHAT
from trainer.events.span import Kind

PLACE = RunPlace(Access("", "", ""), "ns", "o-1", "image", "/data/runs/dev", "train", "claim")


def killed_run() -> bytes:
    """Return the events of a run on 8 GPUs that was killed once, was away for 90 s, and then
    finished.
    """
    told = Story(gpus=8)
    told.starts(4000, 500, 100, 900)
    told.trains(100, 360)
    told.saves(2000)
    told.trains(50, 360)
    told.lives_on(500)
    told.is_away(90_000)
    told.starts(4000, 500, 100, 900)
    told.trains(99, 360)
    told.evaluates(3000)
    told.saves(2000)
    told.finishes()
    return told.content


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command read the events of the killed run, without a stack and a cluster."""
    monkeypatch.setattr(command, "run_place", lambda stack: PLACE)  # pyright: ignore
    monkeypatch.setattr(command, "Api", lambda access: None)  # pyright: ignore
    monkeypatch.setattr(command, "fetch_events", lambda api, place: Events.of(killed_run()))  # pyright: ignore


def test_table_has_every_kind_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a row for each kind of time and their sum, and the text below it explains the
    start, the restart and the lost work. Without a price, no cost is mentioned.
    """
    assert main(["goodput"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split("  ")[0]: line for line in lines}
    assert [kind for kind in Kind if kind.value not in rows] == []
    assert rows["productive"].split()[1:3] == ["71.6", "35.2%"]
    assert rows["lost"].split()[1:3] == ["18.5", "9.1%"]
    assert rows["down"].split()[1:3] == ["90.0", "44.2%"]
    assert rows["wall clock"].split()[2:4] == ["203.5", "100.0%"]
    text = "\n".join(lines)
    assert "step 201, finished; began 2027-01-15 08:00:00 UTC" in text
    assert "time to first step: 8.2 s = start 2.0 s + import 4.0 s + rendezvous 0.5 s" in text
    assert "restart 1 after step 101: 98.2 s = detect 90.0 s" in text
    assert "[killed: it left no word about its end]" in text
    assert "lost work: 50 steps, 18.5 s" in text
    assert "GPU-hours: 0.452 (8 rank(s), each counted as a GPU)" in text
    assert "cost" not in text.lower()


def test_price_adds_a_column_and_the_cost_of_lost_work(capsys: pytest.CaptureFixture[str]) -> None:
    """A price per GPU-hour adds a column with costs, the cost of the lost work, and the cost per
    token.
    """
    assert main(["goodput", "--price-per-gpu-hour", "100"]) == 0
    text = capsys.readouterr().out
    assert "KIND        SECONDS   SHARE   COST" in text
    # 203.54 s x 8 GPUs x 100 / 3600 s, and of that 18.5 s lost; 201 steps of 100 tokens
    assert "cost at 100 per GPU-hour: 45.23, of which 4.11 for lost work; 2250.3040 per 1 M" in text


def test_json_has_the_same_numbers_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """`goodput --json` prints the same numbers for programs: the seconds of each kind, their sum,
    the phases of each start and the cost.
    """
    assert main(["goodput", "--json", "--price-per-gpu-hour", "0.5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["seconds"]) == set(Kind)
    assert abs(sum(found["seconds"].values()) - found["wall_seconds"]) < 0.01
    assert found["finished"] is True
    assert found["restarts"] == 1
    assert found["starts"][1]["phases"]["detect"] == 90
    wall_cost = found["wall_seconds"] / 3600 * 0.5 * 8
    assert abs(found["cost"]["total"] - wall_cost) < 0.001 * wall_cost


def test_price_may_stand_in_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price in the environment serves all commands, and the option overrides it. A price that is
    no number is refused with the name of the variable.
    """
    monkeypatch.setenv(PRICE_VARIABLE, "0.5")
    assert main(["goodput", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["price_per_gpu_hour"] == 0.5
    assert main(["goodput", "--json", "--price-per-gpu-hour", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["price_per_gpu_hour"] == 3
    monkeypatch.setenv(PRICE_VARIABLE, "cheap")
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["status"])
    said = capsys.readouterr().err
    assert "'cheap' cannot be a price" in said
    # The option was not typed, so the message must name the variable.
    assert f"the variable {PRICE_VARIABLE}" in said


@pytest.mark.parametrize("price", ["-1", "nan", "inf", "cheap"])
def test_price_that_cannot_be_is_refused(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["goodput", f"--price-per-gpu-hour={price}"])
    assert f"'{price}' cannot be a price" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (Ended(3, "", ""), "/data/runs/dev/events/node-00000.jsonl does not exist"),
        (Ended(1, "", "PermissionError: no"), "cannot be read: PermissionError: no"),
        (Ended(0, "eJw", ""), "did not arrive whole"),
    ],
)
def test_events_that_cannot_be_had_are_an_error(
    monkeypatch: pytest.MonkeyPatch, ended: Ended, message: str
) -> None:
    """If the events cannot be read, or did not arrive whole, the command fails with the reason."""
    from contextlib import nullcontext

    monkeypatch.setattr(run_events, "running", lambda *a, **k: nullcontext("/pod"))  # pyright: ignore
    monkeypatch.setattr(run_events, "execute", lambda *given: ended)  # pyright: ignore
    with pytest.raises(TaskError, match=r".+") as refusal:
        run_events.fetch_events(None, PLACE)  # pyright: ignore
    assert message in str(refusal.value)


def test_every_kind_is_explained_in_the_table() -> None:
    """Each kind of time has an explanation in the table."""
    assert list(WHAT) == list(Kind)


def test_pod_lives_longer_than_its_start_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node without the image, most of the pod's time may go into pulling it. The deadline
    counts from before that, and must leave time to read the events.
    """
    started = list[TaskPod]()

    @contextmanager
    def running(_: object, pod: TaskPod) -> Iterator[str]:
        started.append(pod)
        yield "/path"

    monkeypatch.setattr(run_events, "running", running)
    monkeypatch.setattr(run_events, "read_events", lambda *_: Events.of(b""))
    run_events.fetch_events(Api(PLACE.access), PLACE)
    (pod,) = started
    assert pod.deadline_seconds >= START_SECONDS + run_events.READ_SECONDS
