"""No program or script of the project switches off a check of host keys or certificates."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SHORTCUTS = (
    r"StrictHostKeyChecking[= ](no|off|accept-new)",
    r"UserKnownHostsFile[= ]/dev/null",
    r"insecure[-_]skip[-_]tls[-_]verify[\"']?[:=] *[\"']?(true|True)",
    r"curl[^\n|]* (-k|--insecure)\b",
    r"verify *= *False",
    r"_create_unverified_context",
    r"--tls-verify=false",
)
FOLDERS = ("cli", "infra", "sandbox", "trainer", "docker")


def sources() -> list[Path]:
    """Return all files in which the ways around a check are looked for."""
    kinds = (".py", ".sh", ".yaml", "")
    files = [f for name in FOLDERS for f in (PROJECT / name).rglob("*") if f.suffix in kinds]
    own = [PROJECT / name for name in ("disttrain", "__main__.py", "Makefile", "Pulumi.yaml")]
    return [f for f in [*files, *own] if f.is_file() and "__pycache__" not in f.parts]


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_no_file_has_a_known_way_around_a_check(shortcut: str) -> None:
    found = [str(f) for f in sources() if re.search(shortcut, f.read_text(errors="replace"))]
    assert found == []


def test_the_search_would_find_them() -> None:
    """Each pattern finds an example of what it looks for, and the search looks at many files.
    Otherwise the test above could pass without looking at anything.
    """
    examples = (
        *("-o StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"),
        *("insecure-skip-tls-verify: true", "curl -fsSL -k https://x", "verify=False"),
        *("ssl._create_unverified_context()", "buildah push --tls-verify=false"),
    )
    for shortcut, example in zip(SHORTCUTS, examples, strict=True):
        assert re.search(shortcut, example)
    assert len(sources()) > 50
