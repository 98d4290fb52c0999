"""A plan from the settings of a stack, read as the engine would hand them to the program."""

import json
import subprocess
from typing import Any, cast

import pulumi
import yaml

from infra.doctor import make_plan
from infra.doctor_plan import Plan
from infra.settings import PROJECT_ROOT, parse_settings


def plan_of_stack(stack: str) -> Plan:
    """Defaults of Pulumi.yaml, then the stack's file; secrets are asked of `pulumi config`.

    Raises:
        ValueError: no such stack, its settings are wrong, or its secrets cannot be read.
    """
    file = PROJECT_ROOT / f"Pulumi.{stack}.yaml"
    if not file.is_file():
        known = sorted(p.name.split(".")[1] for p in PROJECT_ROOT.glob("Pulumi.*.yaml"))
        raise ValueError(f"--stack: {stack!r} is not allowed; allowed: {', '.join(known)}")
    project = yaml.safe_load((PROJECT_ROOT / "Pulumi.yaml").read_text())
    content = cast(dict[str, Any], yaml.safe_load(file.read_text()) or {})
    prefix = f"{project['name']}:"
    given = cast(dict[str, Any], content.get("config") or {})
    own = {key.removeprefix(prefix): value for key, value in given.items()}
    secret = {k for k, v in own.items() if isinstance(v, dict) and list(cast(Any, v)) == ["secure"]}
    if secret:
        own |= {k.removeprefix(prefix): v for k, v in _shown(stack).items()}
    declared = {key: entry["default"] for key, entry in project["config"].items()}
    raw = {key: _text(value) for key, value in {**declared, **own}.items()}
    try:
        return make_plan(parse_settings(raw, secret, stack))
    except pulumi.RunError as problem:
        raise ValueError(str(problem)) from None


def _shown(stack: str) -> dict[str, str]:
    command = ["pulumi", "config", "--show-secrets", "--json", "--stack", stack]
    try:
        done = subprocess.run(
            command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=30
        )
    except FileNotFoundError:
        raise ValueError(
            "the stack has secrets, and there is no pulumi on PATH to read them"
        ) from None
    if done.returncode:
        raise ValueError(f"pulumi config --show-secrets failed: {done.stderr.strip()[-300:]}")
    values = cast(dict[str, dict[str, str]], json.loads(done.stdout))
    return {key: entry["value"] for key, entry in values.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
