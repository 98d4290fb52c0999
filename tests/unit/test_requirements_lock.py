"""requirements.lock is what requirements.txt says, with every package pinned and hashed."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\#]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Return versions by package name, written as PyPI compares names (lower case, `-` for `_`)."""
    found = PIN.findall((PROJECT / name).read_text())
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def entries() -> list[str]:
    """Return each package of the lock with the lines that belong to it."""
    text = (PROJECT / "requirements.lock").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return re.split(r"\n(?=\S)", "\n".join(lines).strip())


@pytest.mark.parametrize("package", pins("requirements.txt"))
def test_lock_has_the_version_of_the_requirement(package: str) -> None:
    assert pins("requirements.lock").get(package) == pins("requirements.txt")[package], (
        "requirements.txt was changed without `make lock`"
    )


def test_every_line_of_the_requirements_is_an_exact_pin() -> None:
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    named = [line for line in lines if line.strip() and not line.startswith("#")]
    assert [line for line in named if not PIN.match(line)] == []


def test_every_locked_package_is_pinned_and_hashed() -> None:
    assert len(entries()) > len(pins("requirements.txt"))
    for entry in entries():
        assert PIN.match(entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry


def test_lock_names_no_index_and_no_address() -> None:
    """The lock is valid for every package index and tells nothing of the one that made it."""
    text = (PROJECT / "requirements.lock").read_text()
    assert re.findall(r"--(?:extra-)?index-url|--find-links|https?://", text) == []
