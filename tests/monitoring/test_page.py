"""docs/monitoring.md and the program name the same metrics and settings."""

import re
from pathlib import Path

from infra.monitoring.panels import PANELS
from infra.monitoring.rules import RULES
from trainer.monitoring.families import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()
NAME = re.compile(r"\bdisttrain_[a-z_]+")


def test_page_lists_every_metric_and_no_other() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `disttrain_")]
    listed = [name for row in rows for name in NAME.findall(row)]
    assert sorted(listed) == sorted(family.name for family in FAMILIES)
    assert set(NAME.findall(PAGE)) == set(listed)


def test_panels_and_rules_name_only_metrics_that_are_offered() -> None:
    texts = [rule.expression for rule in RULES]
    texts += [expression for panel in PANELS for expression, _ in panel.queries]
    named = {name for text in texts for name in NAME.findall(text)}
    assert named - {family.name for family in FAMILIES} == set()
