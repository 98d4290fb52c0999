"""Makes the doctor's plan for a stack from its settings, read as `pulumi up` would read them."""

import json
from dataclasses import replace
from typing import Any, cast

import pulumi

from cli.pulumi_outputs import ask_pulumi
from infra.kinds import KINDS
from infra.node.doctor import make_plan
from infra.node.doctor_plan import Plan
from infra.platform.collected_facts import make_storage
from infra.settings import parse_settings
from infra.settings.project import names_environments, own_values, raw_settings, stack_file


def plan_of_stack(stack: str, *, asks_cluster: bool = True) -> Plan:
    """Make the plan from the defaults in Pulumi.yaml and from the stack's settings file.

    If the file has encrypted settings, or names environments of Pulumi ESC, `pulumi config` is
    asked for their values.

    Args:
        stack: the name of the stack, alone or behind its organization and project.
        asks_cluster: False if the plan is used only for the hosts. Then the file of the setting
            `kubeconfig` need not exist.

    Raises:
        ValueError: there is no such stack, its settings are wrong, or its secrets cannot be read.
    """
    name = stack.rpartition("/")[2]
    try:
        raw, encrypted = raw_settings(stack_file(name))
    except ValueError as error:
        raise ValueError(f"--stack: {error}") from None
    if encrypted or names_environments(stack_file(name)):
        shown, secret = shown_settings(stack)
        raw, encrypted = raw | shown, encrypted | secret
    try:
        unused = () if asks_cluster else ("kubeconfig",)
        settings = parse_settings(raw, encrypted, name, KINDS, unused_keys=unused)
        plan = make_plan(settings.own_platform, settings.run)
        claim = make_storage(settings.own_platform).claim
        return replace(plan, expect=replace(plan.expect, claim=claim))
    except pulumi.RunError as problem:
        raise ValueError(str(problem)) from None


def shown_settings(stack: str) -> tuple[dict[str, str], set[str]]:
    """Return the stack's settings, with its secrets in plain text, and the keys of the secrets.

    `pulumi config` has the settings of the stack's file, of its environments and of Pulumi.yaml.

    Raises:
        ValueError: there is no pulumi, or it cannot show them, for instance without the passphrase.
    """
    text = ask_pulumi(["config", "--show-secrets", "--json", "--stack", stack])
    values = own_values(cast(dict[str, dict[str, Any]], json.loads(text)))
    secret = {key for key, entry in values.items() if entry["secret"]}
    return {key: str(entry["value"]) for key, entry in values.items()}, secret
