"""The metrics that an entrypoint keeps about its ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.checkpoint.second_chance import raise_diverged
from trainer.config import RunConfig
from trainer.launch.exit_codes import RetryableError
from trainer.launch.node import Node
from trainer.monitoring.vitals import State, Vitals


class Clock:
    """A stand-in for the clock, in seconds, that the test turns."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def values(vitals: Vitals) -> dict[str, float]:
    """Return the value of each metric by its name and labels."""
    return {
        "_".join([sample.family.name.removeprefix("disttrain_"), *sample.labels.values()]): (
            sample.value
        )
        for sample in vitals.samples()
        if sample.family.name != "disttrain_info"
    }


def vitals_of(tmp_path: Path, clock: Clock) -> Vitals:
    config = RunConfig.from_mapping({"data_root": str(tmp_path), "dataset": {"file": "/text"}})
    return Vitals(config, Node(3, 2, 1, "node-0", 29500), clock)


def reason_of_divergence() -> str:
    """Return what the ranks report when the training loop finds a loss that is not finite."""
    world: Any = SimpleNamespace(is_main=False, any=lambda said: False)
    with pytest.raises(RetryableError) as error:
        raise_diverged(Path("unused"), world, 7, "loss nan, gradient norm 1.0", 0)
    return str(error.value)


def test_time_of_the_ranks_is_counted_by_what_it_is_for(tmp_path: Path) -> None:
    vitals = vitals_of(tmp_path, clock := Clock())
    for seconds, state in ((1, State.STARTING), (10, State.TRAINING)):
        clock.seconds += seconds
        vitals.enter(state)
    clock.seconds += 100
    found = values(vitals)
    assert found["rank_seconds_total_waiting"] == 2
    assert found["rank_seconds_total_starting"] == 20
    assert found["rank_seconds_total_training"] == 200
    assert found["rank_seconds_total_ended"] == 0


def test_starts_and_their_ends_are_counted(tmp_path: Path) -> None:
    vitals = vitals_of(tmp_path, Clock())
    assert values(vitals)["starts_total"] == values(vitals)["restarts_total"] == 0
    vitals.enter(State.STARTING)
    vitals.see_ranks([None, 0])
    assert values(vitals)["ranks_alive"] == 1
    vitals.round_ended(reason_of_divergence())
    vitals.enter(State.STARTING)
    vitals.see_ranks([1, -9])
    vitals.round_ended("local rank 0 ended with exit status 1 and gave no reason")
    found = values(vitals)
    assert found["ranks_configured"] == 6
    assert found["ranks_alive"] == 0
    assert found["starts_total"] == 2
    assert found["restarts_total"] == found["divergences_total"] == 1


def test_end_says_whether_the_run_is_finished_or_failed(tmp_path: Path) -> None:
    for has_failed in (True, False):
        vitals = vitals_of(tmp_path, Clock())
        vitals.end(has_failed=has_failed)
        assert values(vitals)["failed"] == has_failed
        assert values(vitals)["finished"] == (not has_failed)
