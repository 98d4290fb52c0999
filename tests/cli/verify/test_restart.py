"""`verify --restart` of a run where there is nothing to restart."""

from typing import Any, cast

import pytest

from cli.status.judge import RunStatus
from cli.verify import restart
from tests.cli.records import RECORD


def test_run_whose_pods_are_just_gone_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no pod of the run is running, the restart is `not checked`, and no pod is deleted. A run
    that has just ended still counts as training for some seconds.
    """
    status = RunStatus(RECORD.stack, "disttrain", "Job train-singlepod", 2, "training")
    pods = [{"metadata": {"name": "a"}, "status": {"phase": "Succeeded"}}]
    monkeypatch.setattr(restart, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(restart, "see_run", lambda *_: (status, pods))
    place: Any = type("Place", (), {"namespace": "disttrain", "owner": RECORD.owner})
    found = restart.restart(cast(Any, None), place)
    assert (found.status, found.evidence) == (
        "not checked",
        "no pod of the run is running at this moment",
    )
