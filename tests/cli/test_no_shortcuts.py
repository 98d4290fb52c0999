"""No program or script of the project switches off a check of host keys or certificates.

The files with a connection that can be without such a check are named here, with the reason.
"""

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
    r"\bCERT_NONE\b",
    r"\bcheck_hostname\b",
    r"\bInsecureIgnoreHostKey\b",
    r"\b[Ii]nsecureSkipVerify\b",
)
FOLDERS = (
    *("cli", "infra", "sandbox", "trainer", "docker"),
    *("policy", "bench", "examples", ".ci"),
)
INTENDED = {
    # As the client of Kubernetes does with a kubeconfig that sets `insecure-skip-tls-verify`.
    r"\bCERT_NONE\b": {"infra/kube/api_server/client.py"},
    r"\bcheck_hostname\b": {"infra/kube/api_server/client.py"},
    # As Pulumi's own provider does without a host key. The settings refuse an SSH machine without
    # one (infra/settings/node.py, nodes_host.py).
    r"\bInsecureIgnoreHostKey\b": {"sandbox/go/command/connection.go"},
    # Kueue makes the certificate of its metrics itself at each start (docs/security.md).
    r"\b[Ii]nsecureSkipVerify\b": {"infra/monitoring/objects.py"},
}


def sources() -> list[Path]:
    """Return all files in which the ways around a check are looked for."""
    kinds = (".py", ".sh", ".sbatch", ".go", ".yaml", "")
    files = [f for name in FOLDERS for f in (PROJECT / name).rglob("*") if f.suffix in kinds]
    own = [PROJECT / name for name in ("disttrain", "__main__.py", "Makefile", "Pulumi.yaml")]
    return [f for f in [*files, *own] if f.is_file() and "__pycache__" not in f.parts]


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_no_file_has_a_known_way_around_a_check(shortcut: str) -> None:
    """No file has the way around a check, besides the files that are meant to have it."""
    found = {
        str(file.relative_to(PROJECT))
        for file in sources()
        if re.search(shortcut, file.read_text(errors="replace"))
    }
    assert found == INTENDED.get(shortcut, set())


def test_the_search_would_find_them() -> None:
    """Each pattern finds an example of what it looks for, and the search looks at files of each
    folder. Otherwise the test above could pass without looking at anything.
    """
    examples = (
        *("-o StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"),
        *("insecure-skip-tls-verify: true", "curl -fsSL -k https://x", "verify=False"),
        *("ssl._create_unverified_context()", "buildah push --tls-verify=false"),
        *("context.verify_mode = ssl.CERT_NONE", "context.check_hostname = False"),
        *("ssh.InsecureIgnoreHostKey()", "&tls.Config{InsecureSkipVerify: true}"),
    )
    for shortcut, example in zip(SHORTCUTS, examples, strict=True):
        assert re.search(shortcut, example)
    paths = [str(file.relative_to(PROJECT)) for file in sources()]
    for folder in FOLDERS:
        assert any(path.startswith(f"{folder}/") for path in paths), folder
    assert "sandbox/go/command/connection.go" in paths
    assert len(paths) > 500
