"""How `bench.kinds` turns what it has seen into a recovery in parts, and into a row of the
table.
"""

import pytest

from bench.kinds import KINDS, Often, row_name, settings_of
from bench.kinds_account import Recovery, phases_between
from bench.kinds_faults import AWAY_SECONDS, FAULTS
from bench.kinds_rows import FIRST_STEP, merged, of_fault, recovery_row
from bench.kinds_watch import PodTimes
from trainer.events.event import Event, Name
from trainer.events.span import Phase

START = 1_700_000_000.0


def event(at: float, name: Name, **values: float) -> Event:
    """Return an event of the run, `at` seconds after its start."""
    return Event(name, START + at, at, "boot", values)


# A run whose rank is killed at 10.5 s and makes its next step at 13 s.
EVENTS = [
    event(0, Name.POD_STARTED, age_seconds=0, gpus=0),
    event(1, Name.RANKS_STARTED),
    event(2, Name.RESTORED, step=0, tokens_per_step=10),
    event(3, Name.FIRST_STEP, step=1),
    event(10, Name.REPORT, step=8, steps=7, data_seconds=0, save_seconds=0, longest_seconds=1),
    event(10.5, Name.FAILING),
    event(11, Name.ROUND_ENDED),
    event(11.2, Name.RANKS_STARTED),
    event(12, Name.CONNECTED),
    event(12.5, Name.RESTORED, step=5, tokens_per_step=10),
    event(13, Name.FIRST_STEP, step=6),
    event(20, Name.REPORT, step=13, steps=7, data_seconds=0, save_seconds=0, longest_seconds=1),
]


def test_phases_are_those_of_the_start_in_the_pause() -> None:
    """The time from a kill to the next step is divided into the phases of the start in between, and
    the phases add up to the whole.
    """
    (phases,) = phases_between(EVENTS, [(START + 10.4, START + 13)])
    assert phases[Phase.IMPORT] == pytest.approx(0.8)
    assert phases[Phase.RESTORE] == pytest.approx(0.5)
    assert phases[Phase.FIRST_STEP] == pytest.approx(0.5)
    assert phases[None] == pytest.approx(0.1)
    assert sum(phases.values()) == pytest.approx(2.6)
    with pytest.raises(ValueError, match="no start between"):
        phases_between(EVENTS, [(START + 14, START + 15)])


def recovery(
    seconds: float, account: float, pods: PodTimes | None = None, up: float = 0.0
) -> Recovery:
    """Return a recovery of this length, whose phases add up to `account` seconds."""
    phases = {**dict.fromkeys((None, *Phase), 0.0), Phase.IMPORT: account}
    return Recovery(START, START, START + seconds, phases, pods or PodTimes(), up)


def test_row_is_met_only_where_the_parts_make_up_the_whole() -> None:
    """A row is met only if its p95 is within the bar and the phases add up to the whole, within 2 %
    or 0.1 s.
    """
    row = recovery_row("a kill", 5, [recovery(2, 2), recovery(4, 4.04)])
    assert row.met
    assert "p50 3.0 s, p95 3.9 s (2.0 to 4.0)" in row.measured
    assert "sum and whole differ by at most 0.04 s" in row.measured
    assert "controller" not in row.measured  # no pod was lost
    assert not recovery_row("a kill", 5, [recovery(2, 2), recovery(4, 3.8)]).met
    assert not recovery_row("a kill", 3, [recovery(2, 2), recovery(4, 4)]).met
    assert recovery_row("a kill", 5, [recovery(0.6, 0.55)]).met
    assert recovery_row("a long one", 50, [recovery(40, 39.3)]).met
    assert not recovery_row("a kill", 5, [recovery(0.6, 0.4)]).met


def test_controllers_share_is_from_the_old_pods_end_to_the_new_pod() -> None:
    """The controller's share of a recovery is the time from the old pod's end until it makes the
    new one.
    """
    pods = PodTimes(ended=START + 1, made=START + 1.25, ran=START + 2)
    row = recovery_row("a lost pod", 5, [recovery(3, 3, pods)])
    assert "old pod's end 1.00, then the controller makes the new pod 0.25" in row.measured
    assert "then it runs 0.75" in row.measured


def test_whole_without_the_controllers_share_is_said_apart() -> None:
    """A row also shows the time without the controller's share. The bar is for the whole all the
    same, because users wait for the controller too.
    """
    slow = PodTimes(ended=START + 1, made=START + 20, ran=START + 21)
    early = PodTimes(ended=START + 1, made=START + 0.5, ran=START + 2)  # before the old one ended
    row = recovery_row("a lost pod", 5, [recovery(23, 23, slow)] * 3, "kubernetes#130881")
    said = "without the controller's share (kubernetes#130881) p50 4.0 s, p95 4.0 s; "
    assert said in row.measured
    assert not row.met
    row = recovery_row("a lost pod", 5, [recovery(3, 3, early)])
    assert "without the controller's share p50 3.0 s, p95 3.0 s; " in row.measured
    assert "without" not in recovery_row("a kill", 5, [recovery(2, 2)]).measured


def test_time_without_a_controller_is_said_apart_and_judged_apart() -> None:
    """If the controller was down, the row shows the time without this outage. The bar is for what
    the controller and the run need once the controller is there again.
    """
    pods = PodTimes(ended=START + 0.5, made=START + 11, ran=START + 12)
    row = recovery_row("an outage", 5, [recovery(14, 14, pods, up=START + 10)] * 3)
    assert row.met
    assert (
        "without the 10.0 s in which the controller was down p50 4.0 s, p95 4.0 s" in row.measured
    )
    assert "then the controller makes the new pod 1.00" in row.measured  # since it started
    assert "without the controller's share p50 3.0 s" in row.measured
    assert "without the time in which it was down" in row.bar
    assert not recovery_row("an outage", 3, [recovery(14, 14, pods, up=START + 10)]).met


def test_run_that_needs_no_controller_is_judged_as_a_whole() -> None:
    """A run that made its step before the controller was started again is judged by its whole
    time.
    """
    row = recovery_row("an outage", 5, [recovery(2, 2, up=START + 2.5)])
    assert "down" not in row.measured
    assert row.bar == "p95 <= 5 s, sum within 2 % or 0.1 s"
    assert not recovery_row("an outage", 5, [recovery(7, 7, up=START + 7.5)]).met


def test_rows_that_were_not_measured_stay_in_their_places() -> None:
    """Rows that were measured now replace those of the same fault, in the order of the faults, and
    the other rows stay.
    """

    def row(about: str, times: int) -> dict[str, object]:
        return {"what": f"{about}, {times} times", "measured": "x"}

    first, kill, evicted, _, killed, away = (
        FIRST_STEP,
        *(of_fault(fault.what) for fault in FAULTS),
    )
    before = [{"what": first}, row(kill, 20), row(away, 3)]
    found = merged(before, [row(evicted, 6), row(away, 20), row(killed, 20)])
    assert [each["what"] for each in found] == [
        first,
        f"{kill}, 20 times",
        f"{evicted}, 6 times",
        f"{killed}, 20 times",
        f"{away}, 20 times",
    ]
    assert merged([], before) == before


def test_each_kind_has_its_faults_and_its_controller() -> None:
    """A kind with a single pod has no fault that evicts another pod. The controllers of a kind are
    those that carry it out, which is Kubernetes itself for its own kinds.
    """
    often, single, several = Often(1, 2, 4, 5), KINDS["single-pod"], KINDS["jobset"]
    assert [often.times(single, fault) for fault in FAULTS] == [2, 0, 3, 5, 3]
    assert [often.times(several, fault) for fault in FAULTS] == [2, 4, 4, 5, 5]
    assert single.carried_out_by == ("kube-controller-manager",)
    assert KINDS["trainjob"].carried_out_by == ("jobset", "trainer")
    assert FAULTS[-1].away_seconds == AWAY_SECONDS


def test_rows_of_other_ranks_stand_apart() -> None:
    """Rows of another number of ranks have names of their own, and do not replace those of three
    ranks.
    """
    assert row_name("jobset", 3) == "jobset"
    assert row_name("jobset", 2) == "jobset, 2 ranks"
    several = settings_of("jobset", KINDS["jobset"], "r", 2)
    assert (several["pods"], several["processesPerPod"]) == ("2", "1")
    assert settings_of("single-pod", KINDS["single-pod"], "r", 2)["processesPerPod"] == "2"
