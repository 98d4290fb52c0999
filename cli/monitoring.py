"""`disttrain monitoring`: prints the dashboard or the alert rules for the user's own monitoring."""

import argparse
import json

from infra.monitoring.dashboard import dashboard
from infra.monitoring.rules import rule_file

_PARTS = {"dashboard": dashboard, "rules": rule_file}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain monitoring`."""
    parser.add_argument(
        "part",
        choices=_PARTS,
        metavar=f"{{{','.join(_PARTS)}}}",
        help="dashboard: JSON for Grafana's import; rules: a rule file for Prometheus",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the part as JSON; the exit status is 0."""
    print(json.dumps(_PARTS[arguments.part](), indent=1), flush=True)
    return 0
