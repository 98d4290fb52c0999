"""The alert rules in the real promtool: each fires for its fault, and none without one."""

import json
import re
from pathlib import Path

import pytest

from infra.monitoring.rules import RULES, rule_file
from tests.monitoring.rule_lab import FAULTS, clean_hour, promtool, run_promtool, series

PROJECT = Path(__file__).parents[2]


def test_rules_are_valid_for_prometheus(tmp_path: Path) -> None:
    """The linter's warnings count as errors."""
    (tmp_path / "rules.json").write_text(json.dumps(rule_file()))
    assert promtool(tmp_path, "check", "rules", "--lint-fatal", "rules.json") == ""


def test_no_alert_fires_in_a_clean_hour(tmp_path: Path) -> None:
    assert run_promtool(tmp_path, clean_hour(), {}) == ""


def test_each_rule_has_a_fault_to_fire_for() -> None:
    assert list(FAULTS) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", FAULTS)
def test_each_alert_fires_for_its_fault_alone(name: str, tmp_path: Path) -> None:
    assert run_promtool(tmp_path, {**clean_hour(), **FAULTS[name]}, {name: 1}) == ""


def test_finished_run_raises_no_alert(tmp_path: Path) -> None:
    """Its pods may hold, without a rank and without a step."""
    hour = {**clean_hour(), **FAULTS["DisttrainRankLost"], **FAULTS["DisttrainNoStep"]}
    finished = {key: "0x20 1x39" for key in hour if key.startswith("disttrain_finished{")}
    assert run_promtool(tmp_path, {**hour, **finished}, {}) == ""


@pytest.mark.parametrize(("finished", "alerts"), [("1", {}), ("0", {"DisttrainSilent": 1})])
def test_pod_of_a_finished_run_may_be_silent(
    finished: str, alerts: dict[str, int], tmp_path: Path
) -> None:
    """A Job's pod ends with its run, and a discovery by annotations goes on to find it."""
    hour = {
        series("disttrain_info"): "1x20 _x39",
        series("disttrain_finished"): f"0x19 {finished} _x39",
        'up{job="disttrain/pods",instance="10.0.0.0:9464"}': "1x20 0x39",
    }
    assert run_promtool(tmp_path, hour, alerts) == ""


def test_each_rule_has_a_runbook_section() -> None:
    """The anchor is what a browser makes of a headline of the page."""
    page = (PROJECT / "docs" / "monitoring.md").read_text()
    anchors = {headline.lower() for headline in re.findall(r"^#+ (\w+)$", page, re.MULTILINE)}
    for rule in RULES:
        file, _, anchor = rule.runbook.partition("#")
        assert (PROJECT / file).name == "monitoring.md"
        assert anchor in anchors, rule.name
