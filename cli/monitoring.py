"""`disttrain monitoring`: the dashboard and the alert rules, for a monitoring of one's own."""

import argparse
import json

from infra.monitoring.dashboard import dashboard
from infra.monitoring.rules import rule_file

_PARTS = {"dashboard": dashboard, "rules": rule_file}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `disttrain monitoring`."""
    parser.add_argument(
        "part",
        choices=_PARTS,
        help="dashboard: JSON for Grafana's import; rules: a rule file for Prometheus",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit status: 0."""
    print(json.dumps(_PARTS[arguments.part](), indent=1), flush=True)
    return 0
