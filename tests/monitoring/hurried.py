"""Makes our alert rules sixty times as fast: each minute in them becomes a second.

A test that causes a fault cannot wait for the minutes of a rule. So `for`, the windows in brackets
and the limits that are compared with `time()` are divided by sixty, in the same way in all rules.
Nothing else is changed. Prometheus then has to scrape and to evaluate each second, while users'
servers do so about each minute.
"""

from __future__ import annotations

import re
from typing import Any

TIMES = 60
_UNITS = {"s": 1, "m": 60, "h": 3600}
_WINDOW = re.compile(r"\[(\d+)([smh])\]")
_DURATION = re.compile(r"(\d+)([smh])")
# In `time() - ... > 900`, the first comparison after `time()` is with seconds.
_SINCE = re.compile(r"(time\(\) - [^<>]*> )(\d+)")


def hurried(rule_file: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a rule file with seconds in place of minutes. This function is pure."""
    groups = [
        {**group, "rules": [_hurried_rule(rule) for rule in group["rules"]]}
        for group in rule_file["groups"]
    ]
    return {**rule_file, "groups": groups}


def _hurried_rule(rule: dict[str, Any]) -> dict[str, Any]:
    waits = {"for": _shortened(rule["for"])} if "for" in rule else {}
    return {**rule, **waits, "expr": hurried_expression(rule["expr"])}


def hurried_expression(expression: str) -> str:
    """Return a PromQL expression with seconds in place of minutes. This function is pure."""
    windows = _WINDOW.sub(lambda found: f"[{_shortened(found[1] + found[2])}]", expression)
    return _SINCE.sub(lambda found: f"{found[1]}{_divided(int(found[2]))}", windows)


def _shortened(duration: str) -> str:
    found = _DURATION.fullmatch(duration)
    assert found is not None, duration
    return f"{_divided(int(found[1]) * _UNITS[found[2]])}s"


def _divided(seconds: int) -> int:
    assert seconds % TIMES == 0, f"{seconds} s are no whole minutes"
    return seconds // TIMES
