"""The command in docs/image.md by which a user brings the image to a node by hand."""

import re
import shlex
from pathlib import Path

import pytest

from infra.image.__main__ import main
from infra.image.plan import VARIABLE
from infra.kinds import KINDS
from infra.settings import parse_settings
from tests.unit.stacks import PROJECT, raw_settings


def test_command_by_hand_names_the_image_of_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the default settings, pods ask for exactly the image that the command of the page
    brings. Under another name it would be of no use to them.
    """
    page = (PROJECT / "docs" / "image.md").read_text()
    (shown,) = re.findall(r"^python3 -m infra\.image (ensure .* --ctr) .*$", page, re.MULTILINE)
    settings = parse_settings(raw_settings("dev", {}), (), "dev", KINDS)
    # `ensure` refuses to make another image than this one.
    monkeypatch.setenv(VARIABLE, settings.own_platform.image.plan.reference)
    assert main([*shlex.split(shown), "no-such-ctr", "--cache", str(tmp_path)]) == 1
    assert "'no-such-ctr' is not a program" in capsys.readouterr().out
