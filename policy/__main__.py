"""The policy pack: `pulumi preview --policy-pack policy` names each resource that breaks a rule.

The rules for pods are those of infra/platform/pod_rules.py, which the API server can check too.
"""

import sys
from pathlib import Path

# Pulumi runs the pack in this folder. The project's modules are in the folder above.
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
    """A rule as a policy, which Pulumi applies to each resource of a preview or an `up`."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for problem in rule.problems(args.resource_type, args.props):
            report(problem, args.urn)

    return ResourceValidationPolicy(name=rule.id, description=rule.about, validate=validate)


PolicyPack(
    name="disttrain",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[policy_of(rule) for rule in OBJECT_RULES],
)
