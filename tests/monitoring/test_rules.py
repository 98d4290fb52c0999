"""The alert rules in the real promtool: each fires for its fault, and none without a fault."""

import json
import re
from pathlib import Path

import pytest

from infra.monitoring.rules import RULES, rule_file
from infra.workloads import WORKLOADS
from tests.monitoring.rule_lab import (
    FAULTS,
    HOUR,
    ask_promtool,
    clean_hour,
    promtool,
    run_promtool,
    series,
)
from trainer.watch.slow import Cause

PROJECT = Path(__file__).parents[2]
ONE = {"labels": "{}", "value": 1}


def test_rules_are_valid_for_prometheus(tmp_path: Path) -> None:
    """The rules are valid for Prometheus, and its linter has no warnings about them."""
    (tmp_path / "rules.json").write_text(json.dumps(rule_file()))
    assert promtool(tmp_path, "check", "rules", "--lint-fatal", "rules.json") == ""


def test_no_alert_fires_in_a_clean_hour(tmp_path: Path) -> None:
    assert run_promtool(tmp_path, clean_hour(), {}) == ""


def test_each_rule_has_a_fault_to_fire_for() -> None:
    assert list(FAULTS) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", FAULTS)
def test_each_alert_fires_for_its_fault_alone(name: str, tmp_path: Path) -> None:
    assert run_promtool(tmp_path, {**clean_hour(), **FAULTS[name]}, {name: 1}) == ""


@pytest.mark.parametrize("name", ["DisttrainPodPending", "DisttrainNodeUnhealthy"])
def test_second_exporter_of_pods_is_no_second_alert(name: str, tmp_path: Path) -> None:
    """Two exporters of the same pods give one alert, not two.

    Some clouds have a kube-state-metrics of their own beside the user's.
    """
    hour = {**clean_hour(), **FAULTS[name]}
    twice = {f'{key[:-1]},job="other"}}': hour[key] for key in hour if key.startswith("kube_pod_")}
    assert run_promtool(tmp_path, {**hour, **twice}, {name: 1}) == ""


@pytest.mark.parametrize("topology", WORKLOADS)
def test_pods_of_each_kind_are_training_pods_to_the_rules(topology: str) -> None:
    """The rule about waiting pods matches the pods of every topology, by their workload's name."""
    (rule,) = [rule for rule in RULES if rule.name == "DisttrainPodPending"]
    pattern = re.search(r'pod=~"([^"]+)"', rule.expression)
    assert pattern is not None
    assert re.fullmatch(pattern[1], f"{WORKLOADS[topology].object_name}-0")


def test_pods_of_others_raise_no_alert(tmp_path: Path) -> None:
    """Pods of others raise no alert, also if their names begin with `train-`.

    A Prometheus that several teams share has such pods.
    """
    pending = 'kube_pod_status_phase{namespace="shop",pod="train-model-7d9f-x2",phase="Pending"}'
    assert run_promtool(tmp_path, {**clean_hour(), pending: f"1x{HOUR}"}, {}) == ""


def test_finished_run_raises_no_alert(tmp_path: Path) -> None:
    """A finished run raises no alert, although its pods may stay for a while without ranks and
    steps.
    """
    hour = {**clean_hour(), **FAULTS["DisttrainRankLost"], **FAULTS["DisttrainNoStep"]}
    finished = {key: "0x20 1x39" for key in hour if key.startswith("disttrain_finished{")}
    assert run_promtool(tmp_path, {**hour, **finished}, {}) == ""


@pytest.mark.parametrize(
    ("state", "alerts"), [("training", {}), ("starting", {"DisttrainNoStep": 1})]
)
def test_steps_that_nobody_knows_are_not_missed(
    state: str, alerts: dict[str, int], tmp_path: Path
) -> None:
    """A run of a program that reports no steps raises no alert while it trains.

    A program with `progress` counts as starting until its first step. If that never comes, the
    alert about missing steps fires.
    """
    hour = {
        series("disttrain_info"): f"1x{HOUR}",
        series("disttrain_start_timestamp_seconds"): f"0x{HOUR}",
        series("disttrain_ranks_configured"): f"2x{HOUR}",
        series("disttrain_ranks_alive"): f"2x{HOUR}",
        series("disttrain_rank_seconds_total", state="training"): f"0x{HOUR}",
        series("disttrain_rank_seconds_total", state="starting"): f"0x{HOUR}",
        series("disttrain_rank_seconds_total", state=state): f"0 2+120x{HOUR - 1}",
    }
    assert run_promtool(tmp_path, hour, alerts) == ""


@pytest.mark.parametrize("losses", ["-2x60", "0-0.1x60", "-9+0.1x60"])
def test_loss_below_zero_is_no_spike(losses: str, tmp_path: Path) -> None:
    """A loss below zero, as a user's own program may have, raises no alert about a spike.

    Half as much again as a negative number is a lower number.
    """
    assert run_promtool(tmp_path, {**clean_hour(), series("disttrain_loss"): losses}, {}) == ""


@pytest.mark.parametrize(("finished", "alerts"), [("1", {}), ("0", {"DisttrainSilent": 1})])
def test_pod_of_a_finished_run_may_be_silent(
    finished: str, alerts: dict[str, int], tmp_path: Path
) -> None:
    """A pod that ends with its finished run is not reported as silent.

    A discovery by annotations still finds such a pod of a Job.
    """
    hour = {
        series("disttrain_info"): "1x20 _x39",
        series("disttrain_finished"): f"0x19 {finished} _x39",
        'up{job="disttrain/pods",instance="10.0.0.0:9464"}': "1x20 0x39",
    }
    assert run_promtool(tmp_path, hour, alerts) == ""


@pytest.mark.parametrize(
    ("cause", "rank", "name", "summary"),
    [
        (Cause.DATA, "1", "DisttrainSlowRank", "Run gpt waits for rank 1: data loading."),
        (Cause.NETWORK, "", "DisttrainSlowRank", "Run gpt waits for no single rank: the network."),
        (Cause.THROTTLED, "1", "DisttrainThrottled", "Rank 1 of run gpt stands still at its"),
        (Cause.THROTTLED, "", "DisttrainThrottled", "A pod of run gpt stands still at its"),
    ],
)
def test_slow_run_is_told_with_its_rank_if_it_is_one(
    cause: Cause, rank: str, name: str, summary: str, tmp_path: Path
) -> None:
    """An alert about a slow run names the cause, and the rank if a single one is the reason."""
    (tmp_path / "rules.json").write_text(json.dumps(rule_file()))
    labels = f'run="gpt",rank="{rank}",cause="{cause}"'
    alert = {"eval_time": "30m", "alertname": name, "exp_alerts": []}
    content = {
        "rule_files": ["rules.json"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"disttrain_slow_rank_ratio{{{labels}}}", "values": "2x60"}
                ],
                "alert_rule_test": [alert],
            }
        ],
    }
    (tmp_path / "test.json").write_text(json.dumps(content))
    # promtool fails, because no alert is expected, and shows the alert that fires.
    assert f'summary="{summary}' in promtool(tmp_path, "test", "rules", "test.json")


def test_each_alert_has_the_namespace_of_its_receiver(tmp_path: Path) -> None:
    """Every alert has the label `namespace` of the namespace whose webhook is to be told.

    Alertmanager, as the operator sets it up, tells a webhook only of alerts with its namespace.
    """
    (tmp_path / "rules.json").write_text(json.dumps(rule_file("disttrain")))

    def of(name: str) -> dict[str, object]:
        count = f'count(ALERTS{{alertstate="firing",namespace="disttrain",alertname="{name}"}})'
        return {"expr": count, "eval_time": f"{HOUR}m", "exp_samples": [ONE]}

    hours = [({**clean_hour(), **fault}, [of(name)]) for name, fault in FAULTS.items()]
    assert ask_promtool(tmp_path, hours) == ""


def test_each_rule_has_a_runbook_section() -> None:
    """The runbook link of each rule leads to a section of docs/monitoring.md.

    The anchor is what a browser makes of a headline.
    """
    page = (PROJECT / "docs" / "monitoring.md").read_text()
    anchors = {headline.lower() for headline in re.findall(r"^#+ (\w+)$", page, re.MULTILINE)}
    for rule in RULES:
        file, _, anchor = rule.runbook.partition("#")
        assert (PROJECT / file).name == "monitoring.md"
        assert anchor in anchors, rule.name


def test_each_alert_says_what_to_do() -> None:
    """Each alert says in its own text what to do, for people who have no checkout.

    A link to a page without an address would be of no use to them.
    """
    (group,) = rule_file()["groups"]
    for rule, made in zip(RULES, group["rules"], strict=True):
        annotations = made["annotations"]
        assert set(annotations) == {"summary", "description"}
        steps, _, where = annotations["description"].partition(" More: ")
        assert len(steps.split()) > 8, rule.name
        assert where == f"{rule.runbook} in the folder of disttrain."
