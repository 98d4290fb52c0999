"""What `./disttrain resume` offers where another run has the GPUs."""

from types import SimpleNamespace
from typing import Any

import pytest

from infra.kube.job import Job
from infra.kube.runs import hand_over, steer
from tests.cli.records import RECORD


def test_other_choice_names_the_run_that_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its stack, the command that was shown resumed the run of the selected stack."""
    jobs = list[Job]()
    monkeypatch.setattr(hand_over, "create", lambda job, _: jobs.append(job))
    item = {"metadata": {"name": "train-singlepod"}, "spec": {"suspend": True}}
    api: Any = SimpleNamespace(access=None, path=lambda *_: "", get=lambda _: item)
    assert steer.resume(api, RECORD, "refuse", 1) == ""
    wanted = "./disttrain resume --stack dev --when-busy wait (or replace)"
    assert jobs[0].fields["other_choice"] == wanted
