"""Lists and runs all checks that compare several machines or the network between them."""

from cli.check import PROBE_SECONDS, Result
from cli.doctor.pair import Machine
from cli.doctor.pair_same import SAME_CHECKS
from cli.doctor.pair_ways import WAY_CHECKS
from infra.node.expectations import Expectations

PAIR_CHECKS = (*SAME_CHECKS, *WAY_CHECKS)


def run_pair_checks(machines: list[Machine], expect: Expectations) -> list[Result]:
    """Run all checks. A check that has nothing to look at gives no result."""
    return [
        Result.of(check.id, outcome, PROBE_SECONDS, place)
        for check in PAIR_CHECKS
        for place, outcome in check.judge(machines, expect)
    ]
