"""The screen that `status` shows to people, and the JSON for programs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.progress import Progress
from cli.status.screen import as_json, as_text, platform_line, span

NOW = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
TRAINS = RunStatus(
    "organization/disttrain/dev",
    "disttrain",
    "Job train-singlepod",
    3,
    "training",
    progress=Progress(797, 4000, NOW, "2.0470", "6900", "41.2%", "5m35s", 750, NOW),
)
WAITS = RunStatus(
    "organization/disttrain/multipod",
    "disttrain",
    "StatefulSet train-multipod",
    3,
    "waiting",
    "train-multipod-0 Pending (Unschedulable: Insufficient nvidia.com/gpu)",
    NOW - timedelta(minutes=7),
)
PLATFORM = PlatformStatus(1, (), 3, 3)

SCREEN = """\
1 node, Ready; 3 of 3 GPUs in use
STACK     STATE     STEP      LOSS    TOKENS/S  MFU    ETA    SAVED
dev       training  797/4000  2.0470  6900      41.2%  5m35s  step 750, 0 s ago
multipod  waiting   -         -       -         -      -      -
  train-multipod-0 Pending (Unschedulable: Insufficient nvidia.com/gpu) (for 7 min)"""


def test_a_screen_shows_nodes_runs_and_reasons() -> None:
    assert as_text(PLATFORM, [TRAINS, WAITS], "", NOW) == SCREEN


def test_a_slow_rank_stands_below_its_run_while_it_moves() -> None:
    """A slow rank is shown below its run until the run is over."""
    slow = replace(TRAINS, progress=replace(TRAINS.progress, slow_rank="rank 2 on node 1 is slow"))
    lines = as_text(PLATFORM, [slow, WAITS], "", NOW).splitlines()
    assert lines[3] == "  slow rank: rank 2 on node 1 is slow"
    assert lines[:3] + lines[4:] == SCREEN.splitlines()
    ended = replace(slow, state="finished")
    assert "slow rank" not in as_text(PLATFORM, [ended, WAITS], "", NOW)


def test_a_transport_that_was_not_asked_for_stands_below_its_run() -> None:
    """A transport that was not asked for is shown below its run while the run has pods."""
    said = "rank 0 by NCCL over TCP sockets (eth0), and the network profile asks for InfiniBand"
    other = replace(TRAINS, progress=replace(TRAINS.progress, transport=said))
    lines = as_text(PLATFORM, [other, WAITS], "", NOW).splitlines()
    assert lines[3] == f"  transport not as asked: {said}"
    assert lines[:3] + lines[4:] == SCREEN.splitlines()
    assert "transport" in as_text(PLATFORM, [replace(other, state="stalled")], "", NOW)
    for state in ("finished", "failed", "stopped", "suspended"):
        assert "transport" not in as_text(PLATFORM, [replace(other, state=state)], "", NOW)


def test_ranks_that_train_alone_stand_below_their_run() -> None:
    """Ranks of a program that are not those of the run are shown below it while it has pods."""
    said = "a rank 0 of 8 runs in this pod too"
    alone = replace(TRAINS, progress=replace(TRAINS.progress, own_ranks=said))
    lines = as_text(PLATFORM, [alone, WAITS], "", NOW).splitlines()
    assert lines[3] == f"  ranks not of this run: {said}"
    assert lines[:3] + lines[4:] == SCREEN.splitlines()
    assert said not in as_text(PLATFORM, [replace(alone, state="finished")], "", NOW)


def test_verified_checkpoint_stands_below_its_run() -> None:
    """The verified checkpoint is shown below its run, with its age if it is known. What was only
    saved is not shown as verified.
    """
    known = {"verified_step": 700, "verified_by": "the copy to the mirror"}
    for at, when in ((NOW - timedelta(minutes=12), "12 min ago, "), (None, "")):
        run = replace(TRAINS, progress=replace(TRAINS.progress, verified_at=at, **known))
        lines = as_text(PLATFORM, [run, WAITS], "", NOW).splitlines()
        assert lines[3] == f"  verified: step 700, {when}by the copy to the mirror"
        assert lines[:3] + lines[4:] == SCREEN.splitlines()
    assert "verified" not in SCREEN  # a save alone verifies nothing


def test_goodput_stands_below_its_run() -> None:
    """The account of a run's time is shown below it, as node 0 last wrote it, also for an
    ended run.
    """
    account = "92.3% of 3.1 h: 2 restarts, 14 steps made again"
    told = replace(TRAINS, progress=replace(TRAINS.progress, goodput=account))
    lines = as_text(PLATFORM, [told, WAITS], "", NOW).splitlines()
    assert lines[3] == f"  goodput {account}"
    assert lines[:3] + lines[4:] == SCREEN.splitlines()
    assert f"goodput {account}" in as_text(PLATFORM, [replace(told, state="failed")], "", NOW)


def test_cost_so_far_stands_below_its_run_where_a_price_is_set() -> None:
    """With a price, the cost so far is shown: the price times the hours of all ranks that the log
    tells. If the log tells none, the cost is not guessed.
    """
    at = NOW - timedelta(minutes=3)
    told = replace(TRAINS.progress, goodput="92.3% of 3.1 h", rank_hours=9.3, goodput_at=at)
    runs = [replace(TRAINS, progress=told), WAITS]
    lines = as_text(PLATFORM, runs, "", NOW, 2.5).splitlines()
    assert lines[4] == "  cost 23.25 at 2.5 per GPU-hour for 9.300 rank-hours (as of 3 min ago)"
    assert lines[-1] == "  cost not seen here: ./disttrain goodput computes it"
    assert "cost" not in as_text(PLATFORM, runs, "", NOW)
    found = [run["cost"] for run in json.loads(as_json(PLATFORM, runs, "", NOW, 2.5))["runs"]]
    assert found[0]["total"] == 9.3 * 2.5
    assert found[0]["at"] == at.isoformat()
    assert found[1] is None
    without = json.loads(as_json(PLATFORM, runs, "", NOW))["runs"]
    assert [run["cost"] for run in without] == [None, None]


def test_what_was_not_seen_is_said() -> None:
    """What could not be seen is said at the end."""
    text = as_text(PLATFORM, [], "runs in other namespaces than disttrain (403)", NOW)
    assert "no run is on this platform" in text
    assert text.endswith("not seen: runs in other namespaces than disttrain (403)")


@pytest.mark.parametrize(
    ("platform", "line"),
    [
        (PlatformStatus(3, (), 0, 0), "3 nodes, all Ready; no GPUs offered"),
        (PlatformStatus(2, ("b",), 8, 3), "2 nodes, not Ready: b; 3 of 8 GPUs in use"),
        (PlatformStatus(None, unseen="403"), "nodes: not seen: 403"),
        (
            PlatformStatus(3, (), 8, 3, silent={"b": 13.4}),
            "3 nodes, b has not reported for 13 s; 3 of 8 GPUs in use",
        ),
        (
            PlatformStatus(3, ("b",), 0, 0, silent={"b": 60.0, "c": 14.0}),
            "3 nodes, not Ready: b, c has not reported for 14 s; no GPUs offered",
        ),
        (
            PlatformStatus(1, (), 8, None, "403"),
            "1 node, Ready; 8 GPUs offered; how many are in use was not seen: 403",
        ),
    ],
)
def test_the_first_line_is_of_the_nodes(platform: PlatformStatus, line: str) -> None:
    assert platform_line(platform) == line


def test_idle_gpus_are_named_with_their_price() -> None:
    """Idle GPUs are named with their nodes, and with their cost per hour if a price is set. A
    single node without a price needs no such line, because the first line says it.
    """
    idle = {"gpu-b": 4, "gpu-a": 1}
    platform = PlatformStatus(2, (), 8, 3, gpus_idle=idle)
    lines = as_text(platform, [], "", NOW).splitlines()
    assert lines[:2] == [platform_line(platform), "  idle GPUs: 1 on gpu-a, 4 on gpu-b"]
    priced = as_text(platform, [], "", NOW, 2.5)
    assert "  idle GPUs: 1 on gpu-a, 4 on gpu-b; 12.50 an hour at 2.5 per GPU-hour\n" in priced
    alone = PlatformStatus(1, (), 8, 3, gpus_idle={"gpu-a": 5})
    assert "idle" not in as_text(alone, [], "", NOW)
    assert "5 on gpu-a; 12.50 an hour" in as_text(alone, [], "", NOW, 2.5)
    assert "idle" not in as_text(PlatformStatus(2, (), 8, 8), [], "", NOW, 2.5)


def test_lines_about_many_nodes_stay_short() -> None:
    """In a cluster of hundreds of nodes, some are always idle and some lost. The first ones are
    named, with the number of the others; JSON has each.
    """
    nodes = [f"gpu-{number:03}" for number in range(200)]
    platform = PlatformStatus(
        400, tuple(nodes), 200, 0, silent={f"s{node}": 14.0 for node in nodes},
        gpus_idle={f"i{node}": 1 for node in nodes},
    )  # fmt: skip
    first, idle = as_text(platform, [], "", NOW).splitlines()[:2]
    assert "not Ready: gpu-000, gpu-001, " in first
    assert first.count("and 194 more") == 2
    assert idle.startswith("  idle GPUs: 1 on igpu-000, 1 on igpu-001, ")
    assert idle.endswith(", and 194 more")
    priced = as_text(platform, [], "", NOW, 2.5)
    assert "and 194 more; 500.00 an hour at 2.5 per GPU-hour" in priced
    assert len(json.loads(as_json(platform, [], "", NOW))["platform"]["gpus_idle"]) == 200


def test_programs_get_the_same_as_json() -> None:
    """JSON has the platform and the runs of the screen."""
    found = json.loads(as_json(PLATFORM, [TRAINS, WAITS], "", NOW))
    assert found["platform"]["gpus_used"] == 3
    assert [run["state"] for run in found["runs"]] == ["training", "waiting"]
    assert found["runs"][0]["progress"]["step"] == 797
    assert found["runs"][1]["since"] == "2026-11-22T06:53:00+00:00"


def test_run_that_saves_says_which_step_and_since_when() -> None:
    """A run that saves shows the step of its checkpoint and since when it saves."""
    since = NOW - timedelta(seconds=12)
    progress = replace(TRAINS.progress, saving_step=797, saving_at=since, saving_holds=True)
    words = "checkpoint step 797 is being written, and training waits for it"
    saves = replace(TRAINS, state="saving", detail=words, since=since, progress=progress)
    row, reason = as_text(PLATFORM, [saves], "", NOW).splitlines()[2:]
    assert row.split() == [
        "dev",
        "saving",
        "797/4000",
        "2.0470",
        *"---",
        *["step", "750,", "0", "s", "ago"],
    ]
    assert reason == f"  {words} (for 12 s)"
    (found,) = json.loads(as_json(PLATFORM, [saves], "", NOW))["runs"]
    assert (found["state"], found["since"]) == ("saving", "2026-11-22T06:59:48+00:00")
    assert found["progress"]["saving_step"] == 797


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (119, "119 s"), (420, "7 min"), (8000, "2 h"), (9e5, "10 d")]
)
def test_times_are_said_in_the_largest_unit_that_tells(seconds: float, text: str) -> None:
    assert span(NOW - timedelta(seconds=seconds), NOW) == text
