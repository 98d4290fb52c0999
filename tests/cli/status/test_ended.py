"""What `status` says of a run whose workload was removed after its end: it asks the volume once."""

from argparse import Namespace
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn
from unittest.mock import Mock

import pytest

import cli.resume
import cli.stop
from cli import stack_outputs
from cli.dashboard import queries
from cli.dashboard.pod_keeper import PodKeeper
from cli.dashboard.queries import Queries
from cli.stack_outputs import ClusterPlace, VolumePlace
from cli.status import command, ended
from cli.status.judge import RunStatus, Seen, judge_run
from cli.status.platform_status import PlatformStatus
from cli.status.snapshot import Snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.record import Record, Ttl
from infra.kube.runs.gone import NoPodError
from infra.kube.runs.gone_pod import Asker
from tests.cli.records import NOW, RECORD

NAMESPACE = RECORD.namespace
OWN = Asker("image", "claim", {"securityContext": {"runAsUser": 5000}})
GOES = replace(RECORD, ttl=Ttl(1800, "image", "claim", "/data/runs/dev", {}))


def snapshot_of(record: Record) -> Snapshot:
    """Return a snapshot with this record, and no workload for it."""
    return Snapshot(
        PlatformStatus(1), (judge_run(Seen(record, None, (), {}), NOW),), "", ((record, []),)
    )


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return an API whose time is NOW, with no answers of a volume remembered."""
    monkeypatch.setattr(Api, "now", lambda _: NOW)
    monkeypatch.setattr(ended, "_words", {})
    return Api(Access(kubeconfig="{}"))


class Volume:
    """A stand-in for the volume, which is asked how a run ended and counts the questions."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer, self.asked, self.own = answer, 0, list[object]()

    def __call__(self, _: Api, record: Record, own: object) -> str:
        self.asked += 1
        self.own.append(own)
        print("waiting for a pod")  # `status` must not print this line
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def shown(api: Api, volume: Volume, monkeypatch: pytest.MonkeyPatch, record: Record) -> RunStatus:
    """Return what `status` shows of the record's run."""
    monkeypatch.setattr(ended, "how_ended", volume)
    (run,) = ended.with_ends(api, snapshot_of(record), NAMESPACE, OWN).runs
    return run


def test_runs_of_stacks_of_one_name_are_told_apart(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume's answer is shown only for the run that it is about. Two people may each have a
    stack `dev`.
    """
    of_others = replace(GOES, owner="somebody", ttl=None)
    found = tuple((record, []) for record in (of_others, GOES))
    runs = tuple(judge_run(Seen(record, None, (), {}), NOW) for record, _ in found)
    monkeypatch.setattr(ended, "how_ended", Volume("finished: all done"))
    seen = ended.with_ends(api, Snapshot(PlatformStatus(1), runs, "", found), NAMESPACE, OWN)
    assert [run.state for run in seen.runs] == ["gone", "finished"]


@pytest.mark.parametrize(
    ("claims", "reason", "asked"),
    [
        (["claim", "claim"], NoPodError("waited 60 s"), 1),
        (["claim", "other"], NoPodError("waited 60 s"), 2),
        (["claim", "claim"], TaskError("Permission denied"), 2),
    ],
)
def test_volume_without_a_node_is_waited_for_once(
    claims: list[str], reason: TaskError, asked: int, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the volume can only be read on a node that is lost, a pod waits a minute in vain. The runs
    on one volume share that minute, whatever their number. What is wrong with one run's folder says
    nothing about the others.
    """
    assert GOES.ttl
    found = tuple(
        (replace(GOES, owner=f"o-{number}", ttl=replace(GOES.ttl, claim=claim)), [])
        for number, claim in enumerate(claims)
    )
    runs = tuple(judge_run(Seen(record, None, (), {}), NOW) for record, _ in found)
    volume = Volume(reason)
    monkeypatch.setattr(ended, "how_ended", volume)
    seen = ended.with_ends(api, Snapshot(PlatformStatus(1), runs, "", found), NAMESPACE, OWN)
    assert volume.asked == asked
    assert all(f"was not seen: {reason}" in run.detail for run in seen.runs)


def test_short_run_that_has_gone_is_not_called_starting(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run whose workload was removed after its end is shown as finished, if the volume says
    so. Its record alone is as young as that of a run whose workload is not made yet.

    A run whose workload cannot have been removed yet asks no volume.
    """
    assert GOES.ttl
    short = replace(GOES, ttl=replace(GOES.ttl, seconds=60), since=NOW - timedelta(seconds=80))
    assert snapshot_of(short).runs[0].state == "starting"
    assert shown(api, Volume("finished: all done"), monkeypatch, short).state == "finished"
    assert shown(api, Volume(""), monkeypatch, short).state == "starting"
    young, volume = replace(short, since=NOW - timedelta(seconds=50)), Volume("finished: ")
    assert shown(api, volume, monkeypatch, young).state == "starting"
    assert volume.asked == 0  # the workload cannot have been removed yet
    deleted = shown(api, volume, monkeypatch, replace(GOES, since=NOW - timedelta(seconds=150)))
    assert (deleted.state, volume.asked) == ("gone", 0)
    assert "somebody has deleted it" in deleted.detail


def test_no_pod_is_started_in_a_namespace_of_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` starts no pod in a namespace of other people, whose runs a user with rights in the
    whole cluster sees too.
    """
    volume = Volume("finished: all done")
    run = shown(api, volume, monkeypatch, replace(GOES, namespace="of-others"))
    assert (run.state, volume.asked) == ("gone", 0)
    assert "./disttrain status of its stack reads it on the volume" in run.detail


@pytest.mark.parametrize("state", ["finished", "failed"])
def test_run_that_has_gone_is_called_what_its_volume_says(
    state: str, api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose workload was removed is shown as finished or failed, as its log on the volume
    says. Nothing is printed about the pod that reads it.
    """
    volume = Volume(f"{state}: as the log says")
    run = shown(api, volume, monkeypatch, GOES)
    assert run.state == state
    assert volume.own == [OWN]
    assert run.detail.startswith("as the log says; Job train-singlepod was removed 1800 s after")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("", "no log of the run says that it had ended: somebody has deleted the workload, or"),
        (ApiError(403, "you may not make pods"), "was not seen: you may not make pods"),
        (TaskError("there is no claim"), "was not seen: there is no claim"),
        (UnreachableError("nobody answers"), "was not seen: nobody answers"),
    ],
)
def test_volume_without_an_answer_is_asked_once_and_said(
    answer: str | Exception, words: str, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the volume does not tell how the run ended, `status` says so and asks only once. A status
    that is drawn again and again must not start a pod each time.
    """
    volume = Volume(answer)
    for _ in range(2):
        run = shown(api, volume, monkeypatch, GOES)
        assert run.state == "gone"
        assert words in run.detail
    assert volume.asked == 1


def no_pod() -> NoReturn:
    """Fail the test, because the dashboard starts a pod of its own."""
    raise AssertionError("the page needs no pod of its own for that")


def test_page_calls_such_a_run_finished_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard shows such a run as finished too. Its pod is one of the stack, too."""
    place = VolumePlace(
        api.access,
        GOES.namespace,
        GOES.owner,
        "image",
        "claim",
        "/data/runs",
        placement=OWN.placement,
    )
    volume = Volume("finished: all done")
    monkeypatch.setattr(queries, "take_snapshot", lambda *_: snapshot_of(GOES))
    monkeypatch.setattr(Api, "list", lambda *_: [])
    monkeypatch.setattr(ended, "how_ended", volume)
    (run,) = Queries(place, PodKeeper(no_pod)).cluster().snapshot.runs
    assert run.state == "finished"
    assert volume.own == [OWN]


def test_commands_ask_with_the_placement_of_their_stack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status`, `stop` and `resume` take the user, the labels and the annotations of the pod from
    the outputs of their stack.
    """
    outputs = {
        **{"kubeconfig": "/kubeconfig", "namespace": NAMESPACE, "owner": "me", "claim": "claim"},
        **{"image": "image", "runPath": "/data/runs/dev", "workload": "w"},
        "podPlacement": "{securityContext: {runAsUser: 5000}}",
    }
    monkeypatch.setattr(stack_outputs, "outputs_of", lambda *_, **__: outputs)
    given = list[object]()

    def answer(*words: object) -> str:
        given.append(words[-1])
        return "there is nothing to do"

    for module in (cli.stop, cli.resume):
        monkeypatch.setattr(module, "end_in_order", lambda: None)
        monkeypatch.setattr(module, "Api", lambda _: None)
        monkeypatch.setattr(module, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(cli.stop, "LastLines", Mock())
    monkeypatch.setattr(cli.stop, "stop", answer)
    monkeypatch.setattr(cli.resume, "resume", answer)
    assert cli.stop.run(Namespace(stack="dev")) == 0
    assert cli.resume.run(Namespace(stack="dev", when_busy="refuse")) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert given == [OWN, OWN]
    assert stack_outputs.cluster_place("dev").asker == OWN


def test_status_asks_with_the_placement_of_its_stack(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` hands the placement of its stack on to the pod."""
    volume = Volume("finished: all done")
    monkeypatch.setattr(ended, "how_ended", volume)
    monkeypatch.setattr(command, "take_snapshot", lambda *_, **__: snapshot_of(GOES))
    place = ClusterPlace(api.access, NAMESPACE, OWN)
    seen, _ = command._snapshot(api, place, Namespace(json=False, run=""))  # pyright: ignore[reportPrivateUsage]
    assert [run.state for run in seen.runs] == ["finished"]
    assert volume.own == [OWN]


def test_workload_that_somebody_deleted_asks_no_volume(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a time after which its workload is removed asks no volume: somebody has deleted
    it.
    """
    volume = Volume("finished: ")
    run = shown(api, volume, monkeypatch, RECORD)
    assert (run.state, volume.asked) == ("gone", 0)
    assert "somebody has deleted it" in run.detail
