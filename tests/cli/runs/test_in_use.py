"""`runs delete` refuses a run that a stack uses."""

from datetime import UTC, datetime
from typing import Any

from cli.runs.in_use import refusal, users
from infra.kube import names
from infra.kube.record import Record
from infra.kube.workload import Workload


def record(owner: str, stack: str) -> dict[str, Any]:
    """Return the record of a stack's run as the cluster keeps it."""
    workload = Workload("batch/v1", "Job", "train")
    now = datetime.now(UTC)
    made = Record(owner, stack, workload, "r1", 0, 0, {}, {}, (), 20, "first", now)
    return made.to_object("ns")


def config(owner: str, text: str) -> dict[str, Any]:
    """Return a run's configuration as the cluster keeps it."""
    labels = {names.OWNER_LABEL: owner}
    return {"metadata": {"name": "run-0123", "labels": labels}, "data": {"run.yaml": text}}


def test_run_of_a_record_is_in_use_and_others_are_not() -> None:
    """The run of a stack's record is in use. A run whose configuration no record belongs to is
    not.
    """
    configs = [config("o1", "run_name: one"), config("o2", "run_name: two")]
    found = users([record("o1", "organization/disttrain/dev")], configs)
    assert found.stacks == {"one": ["dev"]}
    assert "run 'one' is in use by stack dev. First" in refusal("one", found)
    assert refusal("two", found) == ""


def test_refusal_names_the_setting_of_stacks() -> None:
    """The refusal names the setting `runName`. `run.run_name`, the trainer's name for it, would be
    refused in a stack's settings.
    """
    refused = refusal("mine", users([], [], "mine"))
    assert "another runName and pulumi up" in refused
    assert "run_name" not in refused


def test_both_configurations_of_a_change_count() -> None:
    """While `pulumi up` replaces a run's configuration by the next one, both runs are in use."""
    configs = [config("o1", "run_name: one"), config("o1", "run_name: two")]
    assert set(users([record("o1", "dev")], configs).stacks) == {"one", "two"}


def test_record_that_cannot_be_read_stops_every_removal() -> None:
    """If a record or a configuration cannot be read or is missing, no run may be deleted."""
    broken = record("o1", "dev")
    broken["data"] = {}
    for records, configs in (
        ([broken], [config("o1", "run_name: one")]),
        ([record("o1", "dev")], [config("o1", "{")]),
        ([record("o1", "dev")], []),
    ):
        found = users(records, configs)
        assert "could not be seen whether it is in use" in refusal("other", found)


def test_run_of_the_own_outputs_is_in_use_without_a_record() -> None:
    """The run in the selected or named stack's outputs is in use even without a record. With a
    record, the record's stack is named.
    """
    found = users([], [], "mine")
    assert found.stacks == {"mine": ["the selected stack"]}
    assert "run 'mine' is in use by the selected stack. First" in refusal("mine", found)
    assert users([], [], "mine", "wide").stacks == {"mine": ["wide"]}
    both = users([record("o1", "dev")], [config("o1", "run_name: mine")], "mine")
    assert both.stacks == {"mine": ["dev"]}
