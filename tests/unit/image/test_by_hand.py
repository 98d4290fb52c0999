"""The command in docs/image.md by which a user brings the image to a node by hand."""

import re
import shlex
from pathlib import Path

import pytest

from infra.image.__main__ import main
from infra.kinds import KINDS
from infra.settings import parse_settings
from tests.unit.stacks import PROJECT, raw_settings


def test_command_by_hand_names_the_image_of_the_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the default settings, pods ask for exactly the image that the command of the page
    brings. Under another name it would be of no use to them.
    """
    page = (PROJECT / "docs" / "image.md").read_text()
    (shown,) = re.findall(r"^python3 -m infra\.image ensure (.* --ctr) .*$", page, re.MULTILINE)
    ctr = tmp_path / "ctr"
    ctr.write_text('#!/bin/sh\necho "asked: $*" >&2\nexit 1\n')
    ctr.chmod(0o755)
    assert main(["check", *shlex.split(shown), str(ctr), "--cache", str(tmp_path)]) == 1
    settings = parse_settings(raw_settings("dev", {}), (), "dev", KINDS)
    said = " ".join(capsys.readouterr().out.split())
    assert f"name=={settings.own_platform.image.plan.reference}" in said
