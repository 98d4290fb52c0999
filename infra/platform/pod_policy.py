"""The policy of the setting `podPolicy`, with which the API server checks every pod itself."""

from dataclasses import dataclass
from typing import Any, Literal

import pulumi

from infra.dependencies import child_options
from infra.labels import metadata
from infra.objects import kubernetes_object
from infra.platform.pod_rules import RULES, VARIABLES

API_VERSION, KIND = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"


@dataclass(frozen=True)
class PodPolicyArgs:
    """Where the policy holds, who owns it, and what happens to a pod that breaks a rule.

    Args:
        namespace: namespace of the platform.
        stack: name of the platform's stack.
        owner: identifies the stack's state.
        action: with `warn`, whoever makes the pod gets a warning; with `deny`, the API server
            refuses the pod.
    """

    namespace: str
    stack: str
    owner: pulumi.Input[str]
    action: Literal["warn", "deny"]


def policy_name(namespace: str) -> str:
    """Name of the policy. Each platform has its own, which `pulumi destroy` removes with it."""
    return f"{namespace}-pods"


def policy(args: PodPolicyArgs) -> dict[str, Any]:
    """The manifest of the policy, with all rules."""
    name = policy_name(args.namespace)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata(name, None, "policy", stack=args.stack, owner=args.owner),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "variables": [
                {"name": name, "expression": expression} for name, expression in VARIABLES.items()
            ],
            "validations": [
                {"expression": rule.cel, "message": f"{rule.id}: {rule.about}"} for rule in RULES
            ],
        },
    }


def binding(args: PodPolicyArgs) -> dict[str, Any]:
    """The manifest of the binding, which says that the rules hold in the platform's namespace."""
    name = policy_name(args.namespace)
    labels = {"kubernetes.io/metadata.name": args.namespace}
    return {
        "apiVersion": API_VERSION,
        "kind": f"{KIND}Binding",
        "metadata": metadata(name, None, "policy", stack=args.stack, owner=args.owner),
        "spec": {
            "policyName": name,
            "validationActions": [args.action.capitalize()],
            "matchResources": {"namespaceSelector": {"matchLabels": labels}},
        },
    }


class PodPolicy(pulumi.ComponentResource):
    """The policy and its binding to the platform's namespace."""

    def __init__(
        self, name: str, args: PodPolicyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:PodPolicy", name, {}, opts)
        child = child_options(self, opts)
        rules = kubernetes_object(f"{name}-rules", policy(args), child)
        bound = pulumi.ResourceOptions(parent=self, depends_on=[rules])
        kubernetes_object(f"{name}-binding", binding(args), bound)
        self.register_outputs({})
