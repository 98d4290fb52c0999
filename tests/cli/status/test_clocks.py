"""`status` shows a run's real age on nodes whose clocks are wrong by minutes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.status.clocks import ahead_when_told, by_api_clock, clocks_ahead
from cli.status.judge import STALLED_SECONDS
from cli.status.progress import Progress
from cli.status.silence import LEASES
from infra.kube.api_server.answer import Answer
from tests.cli.records import NOW
from tests.cli.status.leases import lease
from tests.cli.status.lost_machine import Server, pod, run_of, snapshot_of


def told_ready(clock_seconds: float, ready_seconds: float = 3600.0) -> dict[str, Any]:
    """Return a pod whose kubelet, whose clock is wrong by `clock_seconds`, has said that the pod is
    ready.

    The API server has noted the kubelet's message a moment later, in whole seconds. Somebody else
    has changed the pod since.
    """
    at = NOW - timedelta(seconds=ready_seconds)
    own = at + timedelta(seconds=clock_seconds)
    scheduled = {"type": "PodScheduled", "lastTransitionTime": f"{NOW:%FT%TZ}"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"{own:%FT%TZ}"}
    fields = {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {}}}}
    noted = f"{at + timedelta(seconds=0.7):%FT%TZ}"
    by_kubelet = {"manager": "kubelet", "subresource": "status", "fieldsV1": fields, "time": noted}
    by_other = {"manager": "kubectl", "fieldsV1": {"f:metadata": {}}, "time": f"{NOW:%FT%TZ}"}
    made = pod("a", "n1")
    made["metadata"]["managedFields"] = [by_kubelet, by_other]
    made["status"]["conditions"] = [scheduled, ready]
    return made


STEP = "step {}/9 loss 2.0 tokens/s 5 mfu - eta 1s"
WRONG = [-900.0, -600.0, -45.0, 45.0, 600.0, 900.0]


class Wrong(Server):
    """A stand-in API server whose node n1 has a wrong clock. All pods are on n1, and print a step
    every 10 s.

    Args:
        clock_seconds: how far the clock of n1 is ahead of the API server's clock.
        age_seconds: the age of the last step.
        shows_leases: whether this user may read the Leases of the nodes.
    """

    def __init__(
        self, clock_seconds: float, age_seconds: float, *, shows_leases: bool = True
    ) -> None:
        super().__init__(1)
        self.pods[:] = [told_ready(clock_seconds)]
        self.clock_seconds, self.age_seconds = clock_seconds, age_seconds
        self.shows_leases = shows_leases
        self.asked_for_age = 0
        self.tells_ages = True

    def leases(self) -> list[dict[str, Any]]:
        return [lease("n1", 1, self.clock_seconds), lease("n2", 1)]

    def answer(self, path: str, query: dict[str, str], seconds: float | None) -> Answer:
        answer = super().answer(path, query, seconds)
        if path == LEASES and not self.shows_leases:
            return Answer(403, answer.date, '{"message": "no"}')
        if not path.endswith("/log"):
            return answer
        if "sinceSeconds" in query and not self.tells_ages:
            raise OSError("no answer")
        ages = [self.age_seconds + 10 * back for back in (3, 2, 1, 0)]
        # Kubernetes compares by the node's clock, which also stamps the lines.
        since = float(query.get("sinceSeconds", "1e9"))
        self.asked_for_age += "sinceSeconds" in query
        ahead = timedelta(seconds=self.clock_seconds)
        lines = [
            f"{NOW + ahead - timedelta(seconds=age):%FT%T.%f}Z {STEP.format(number)}"
            for number, age in enumerate(ages, 4)
            if age <= since
        ]
        last = lines[-int(query["tailLines"]) :]
        return Answer(200, answer.date, "".join(f"{line}\n" for line in last))


@pytest.mark.parametrize("clock", WRONG)
@pytest.mark.parametrize(
    ("age", "state"), [(2, "training"), (120, "quiet"), (STALLED_SECONDS + 20, "stalled")]
)
def test_wrong_clock_does_not_change_the_word(clock: float, age: float, state: str) -> None:
    """The state of a run follows from the real age of its last step, though the clock of its node
    is wrong. Otherwise a run on a node that is behind by minutes would be called stalled at once,
    and on a node that is ahead never.
    """
    found = run_of(Wrong(clock, age))
    assert found.state == state
    stepped = found.progress.stepped_at
    assert stepped is not None
    assert abs((NOW - stepped).total_seconds() - age) <= 1.1


@pytest.mark.parametrize("clock", WRONG)
def test_wrong_clock_is_said_with_its_node(clock: float) -> None:
    """`status` says of which node the clock is wrong, by how many seconds, and in which
    direction.
    """
    (said,) = snapshot_of(Wrong(clock, 2)).platform.findings
    assert said.node == "n1"
    assert not said.needs_attention
    way = "ahead of" if clock > 0 else "behind"
    assert said.text.startswith(f"the clock is {abs(clock):.0f} s {way} the API server's")


@pytest.mark.parametrize("clock", [0.0, 0.4, -0.4])
def test_right_clock_is_not_corrected(clock: float) -> None:
    """Times are not corrected for a difference below a second. The API server notes only whole
    seconds, which is no difference between clocks.
    """
    server = Wrong(clock, 2)
    found = snapshot_of(server)
    assert found.platform.findings == ()
    stepped = found.runs[0].progress.stepped_at
    assert stepped == NOW + timedelta(seconds=clock - 2)
    assert server.asked_for_age == 0


@pytest.mark.parametrize(
    ("clock", "age", "state"),
    [
        (-120, 2, "training"),  # uncorrected, the run would be called quiet
        (-600, 2, "training"),
        (-600, 120, "quiet"),
        (-600, STALLED_SECONDS + 20, "stalled"),
        (0, STALLED_SECONDS + 20, "stalled"),
        (600, 2, "training"),
        (600, 120, "quiet"),
        (600, STALLED_SECONDS + 20, "stalled"),
        (45, STALLED_SECONDS + 20, "stalled"),  # uncorrected, the run would be called quiet
        (200, STALLED_SECONDS + 20, "stalled"),
        (110, 120, "quiet"),  # uncorrected, the run would be called training
    ],
)
def test_without_leases_the_node_is_asked_for_the_age(clock: float, age: float, state: str) -> None:
    """A user who may not read Leases sees the right state too. `status` then asks for the log of
    the last seconds, which the node selects by the same clock that stamps the lines.
    """
    assert run_of(Wrong(clock, age, shows_leases=False)).state == state


def test_age_is_asked_for_only_where_it_looks_wrong() -> None:
    """The further question about the age is asked only for a run that looks stalled, and not for a
    run that trains.
    """
    server = Wrong(0, 2, shows_leases=False)
    assert run_of(server).state == "training"
    assert server.asked_for_age == 0
    stalled = Wrong(0, STALLED_SECONDS + 20, shows_leases=False)
    run_of(stalled)
    assert stalled.asked_for_age == 1


def test_clock_that_was_set_right_since_is_measured_anew() -> None:
    """A clock that was wrong when the pod became ready, and is right now, is measured again. The
    pod's status tells only of the clock at the time at which it was written.
    """
    server = Wrong(0, 2, shows_leases=False)
    server.pods[:] = [told_ready(600)]
    assert run_of(server).state == "training"
    assert server.asked_for_age > 1


def test_status_without_a_noted_time_tells_of_no_clock() -> None:
    """The pod's status tells how far the clock is ahead only if the kubelet wrote it and it has a
    condition with a time.
    """
    assert ahead_when_told(told_ready(600)) == pytest.approx(600, abs=1)
    assert ahead_when_told(told_ready(0)) == pytest.approx(0, abs=1)
    nobody, never = told_ready(600), told_ready(600)
    nobody["metadata"]["managedFields"][0]["manager"] = "kubectl"
    never["status"]["conditions"].pop()
    assert [ahead_when_told(each) for each in (nobody, never, pod("a", "n1"))] == [0.0] * 3


def test_node_that_does_not_tell_its_age_is_seen_as_before() -> None:
    """If the further question gets no answer, the run is shown by the times of its lines. A later
    snapshot asks again.
    """
    server = Wrong(-600, 2, shows_leases=False)
    server.tells_ages = False
    assert run_of(server).state == "stalled"


def test_only_a_noted_renewal_tells_of_a_clock() -> None:
    """Only a Lease with its own time and the API server's note about it tells of a clock. Leases of
    other versions of Kubernetes may lack one of them.
    """
    leases = [lease("a", 5, 600), lease("b", 500, -70), lease("c", 5), lease("d", 5, 50)]
    del leases[2]["spec"]["renewTime"]
    del leases[3]["metadata"]["managedFields"]
    found = clocks_ahead(leases)
    assert found.keys() == {"a", "b"}
    assert found == pytest.approx({"a": 600, "b": -70})


def test_all_times_of_a_run_are_moved() -> None:
    """All times of a run are corrected: of steps, of a save and of trouble. What has no time stays
    as it is.
    """
    at = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
    told = Progress(step=3, stepped_at=at, saved_at=at, trouble_at=at, stepped_before=(at, at))
    moved = by_api_clock(told, 60.0)
    then = at - timedelta(seconds=60)
    assert (moved.stepped_at, moved.saved_at, moved.trouble_at) == (then, then, then)
    assert moved.stepped_before == (then, then)
    assert (moved.step, moved.saving_at) == (3, None)
    assert by_api_clock(told, 0.0) == told
