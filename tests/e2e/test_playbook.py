"""Every command of docs/playbook.md is run as the page shows it, and has to print what is shown."""

import pytest

from sandbox.venvs import PROJECT
from tests.e2e.demo_shell import demo_shell, type_page
from tests.e2e.lab import Lab


def test_playbook_shows_what_it_says(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    with demo_shell(lab, tmp_path_factory) as shell:
        type_page(shell, PROJECT / "docs" / "playbook.md")
