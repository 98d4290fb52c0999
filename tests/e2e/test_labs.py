"""Every command of the labs in docs/learn is run as it stands there, and prints what is shown.

The labs build on each other, in the order of their numbers.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.controllers.controller import stop_controller
from sandbox.controllers.kueue import KUEUE
from sandbox.gpus import offer_gpus, offered_gpus
from sandbox.venvs import PROJECT
from tests.e2e.demo_shell import demo_shell, pattern_of, type_page
from tests.e2e.lab import Lab
from tests.in_depth import in_depth

pytestmark = pytest.mark.in_order

LABS = sorted((PROJECT / "docs" / "learn").glob("[0-9]*.md"))


@pytest.mark.parametrize(
    ("shown", "output", "fits"),
    [
        ((), "", True),
        ((), "x\n", False),
        (("a", "..."), "a\nb\nc\n", True),
        (("...", "c"), "a\nb\nc\n", True),
        (("...", "c"), "a\nb\n", False),
        (("step ... loss",), "step 12 loss\n", True),
        (("a  b",), "a      b  \n", True),
        (("a.b",), "axb\n", False),
    ],
)
def test_what_is_shown_is_compared(shown: tuple[str, ...], output: str, fits: bool) -> None:
    """In a page, `...` stands for any lines or any text, and spaces for any number of spaces."""
    assert bool(pattern_of(shown).fullmatch(output)) == fits


@pytest.fixture(scope="module")
def shell(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment variables of a shell for all labs; afterwards Kueue and the GPUs are
    gone.
    """
    with demo_shell(lab, tmp_path_factory) as made:
        yield made
        # The labs take these away themselves, unless one of them has failed before.
        if not lab.cluster.node(1).ended([KUEUE.name]):
            stop_controller(lab.cluster, KUEUE)
        if offered_gpus(lab.cluster):
            offer_gpus(lab.cluster, 0)


@pytest.mark.parametrize("page", [LABS[0], *map(in_depth, LABS[1:])], ids=lambda page: page.stem)
def test_lab_prints_what_its_page_shows(shell: dict[str, str], page: Path) -> None:
    type_page(shell, page)
