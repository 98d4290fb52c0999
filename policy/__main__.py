"""The policy pack: `pulumi preview --policy-pack policy` names what breaks a rule.

The rules of pods are those of infra/platform/pod_rules.py, which the API server can check too.
"""

import sys
from pathlib import Path

# The pack runs in this folder, and the project is the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

from infra.platform.object_rules import OBJECT_RULES, ObjectRule


def policy_of(rule: ObjectRule) -> ResourceValidationPolicy:
    """The rule as Pulumi asks it: for each resource of a preview or an `up`."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for problem in rule.problems(args.resource_type, args.props):
            report(problem, args.urn)

    return ResourceValidationPolicy(name=rule.id, description=rule.about, validate=validate)


PolicyPack(
    name="disttrain",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[policy_of(rule) for rule in OBJECT_RULES],
)
