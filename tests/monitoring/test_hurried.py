"""The rules with which tests cause faults differ from ours only in their times."""

import json
import re
from pathlib import Path

from infra.monitoring.rules import RULES, rule_file
from tests.monitoring.hurried import hurried, hurried_expression
from tests.monitoring.rule_lab import promtool

SHORTENED = {"[10m]": "[10s]", "[15m]": "[15s]", "[30m]": "[30s]", "[1h]": "[60s]", "900": "15"}
TIME = re.compile(r"\[\d+[smh]\]|(?<=> )900\b")


def test_only_the_times_of_the_rules_are_shortened() -> None:
    (before,), (after,) = rule_file()["groups"], hurried(rule_file())["groups"]
    assert len(after["rules"]) == len(RULES)
    for ours, theirs in zip(before["rules"], after["rules"], strict=True):
        assert theirs["expr"] == TIME.sub(lambda found: SHORTENED[found[0]], ours["expr"])
        assert theirs.get("for") == (ours["for"].replace("m", "s") if "for" in ours else None)
        assert {**theirs, "expr": "", "for": ""} == {**ours, "expr": "", "for": ""}


def test_limit_that_is_no_time_stays_as_it_is() -> None:
    expression = "time() - max by (run) (a) > 900 unless on (run) b > 120 and rate(c[2m]) > 60"
    wanted = "time() - max by (run) (a) > 15 unless on (run) b > 120 and rate(c[2s]) > 60"
    assert hurried_expression(expression) == wanted


def test_shortened_rules_are_valid_for_prometheus(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(hurried(rule_file())))
    assert promtool(tmp_path, "check", "rules", "--lint-fatal", "rules.json") == ""
