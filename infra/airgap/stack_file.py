"""Reads the settings of a stack from its file, without Pulumi's engine."""

from collections.abc import Mapping
from pathlib import Path

import pulumi

from infra.kinds import KINDS
from infra.settings import PlatformForRuns, PlatformSettings, Settings, parse_settings
from infra.settings.project import raw_settings
from infra.settings.setting_error import problem_text


def settings_of(file: Path, changes: Mapping[str, str]) -> Settings:
    """Return the settings from Pulumi.yaml's defaults, the stack's file, and `changes`.

    Of a setting, `changes` counts before the file, and the file before the default. Encrypted
    settings are treated as not set. What is packed depends on none of them except the package index
    of torch, which is refused if it is encrypted. If another stack owns the platform, its settings
    are read from that stack's file, which must be in the same folder.

    Raises:
        ValueError: there is no such file, or its settings are wrong, or the file of the stack that
            owns the platform is missing.
    """
    raw, encrypted = raw_settings(file)
    if "torchIndexUrl" in encrypted:
        raise ValueError(
            problem_text(
                "torchIndexUrl",
                "[secret]",
                "a bundle is packed without Pulumi, which alone can decrypt it",
                "Set it without user and password in the stack that is packed, and give the "
                "whole address to pip by the variable PIP_EXTRA_INDEX_URL",
            )
        )
    raw |= changes
    stack = file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    try:
        settings = parse_settings(raw, (), stack, KINDS)
        if settings.platform is None:
            owner = _owner_of_platform(file, settings.platform_stack)
            platform = PlatformForRuns(
                owner.devices, owner.queue, owner.delivery_for_runs, owner.on_k3s
            )
            settings = parse_settings(raw, (), stack, KINDS, platform)
    except pulumi.RunError as problem:
        raise ValueError(str(problem)) from None
    return settings


def _owner_of_platform(file: Path, platform_stack: str) -> PlatformSettings:
    """Return the settings of another stack's platform, from that stack's file."""
    name = platform_stack.rpartition("/")[2]
    owner = file.with_name(f"Pulumi.{name}.yaml")
    if not owner.is_file():
        raise ValueError(
            problem_text(
                "platform",
                repr(platform_stack),
                f"there is no {owner}, which says whether that platform has GPUs",
                "Put the file of the stack that owns the platform there",
            )
        )
    raw = {**raw_settings(owner)[0], "bundle": "", "bundleSha256": ""}
    return parse_settings(raw, (), name, KINDS).own_platform
