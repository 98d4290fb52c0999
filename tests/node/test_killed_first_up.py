"""A first `pulumi up` of `host: ssh` that is killed, with all programs that it has started.

Nothing of it removes anything then. So no secret may be in a file, but in the copies of the
kubeconfig that Pulumi's Kubernetes provider makes as it starts: the next command removes those.
`make test-engines` runs this file.
"""

import re
import shlex
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.node.lab import Lab, background_up, output_file, wait_for
from tests.node.rootfs import PASSWORD

PROXY_PASSWORD = "proxy-hunter3"
COPY = re.compile(r"kubeconfig\d+")
# How far an `up` has come.
DOWNLOAD, K3S, PROVIDER = "the download", "k3s", "the provider"
OF_USERS = "/tmp /var/tmp /dev/shm /run/user /home /root"  # folders of the host


def has_begun(lab: Lab, phase: str, temporary: Path) -> Callable[[], bool]:
    if phase == DOWNLOAD:
        return lambda: any(each.endswith("/k3s") for each in lab.mirror.requests)
    if phase == K3S:
        return lambda: lab.host.try_shell("systemctl is-active --quiet k3s").returncode == 0
    return lambda: bool(copies(temporary))


def copies(folder: Path) -> list[Path]:
    """Those of the provider."""
    return [path for path in folder.iterdir() if COPY.fullmatch(path.name)]


def with_secrets(secrets: Iterable[str], *folders: Path) -> list[Path]:
    """The files below these folders in which one of the texts is."""
    wanted = [secret.encode() for secret in secrets]
    files = (path for folder in folders for path in folder.rglob("*"))
    found = [path for path in files if path.is_file() and not path.is_symlink()]
    return [path for path in found if any(each in path.read_bytes() for each in wanted)]


@pytest.mark.parametrize("then", ["up", "destroy"])
@pytest.mark.parametrize("phase", [DOWNLOAD, K3S, PROVIDER])
def test_killed_first_up_leaves_no_secret_that_stays(
    lab: Lab, tmp_path: Path, phase: str, then: str
) -> None:
    """Where it was killed as the provider began, `destroy` had no task that removed the copies."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    proxy = f"http://me:{PROXY_PASSWORD}@127.0.0.1:3128"
    stack = lab.stack("admin", sudoPassword=PASSWORD, httpProxy=proxy, clusterAccess="tunnel")
    stack.environment |= {"TMPDIR": str(temporary), "HOME": str(home)}
    key = lab.private_key.splitlines()[1]
    secrets, kubeconfigs = (key, PASSWORD, PROXY_PASSWORD), ("clientKeyData", "client-key-data")
    own = Path.home() / ".ssh"

    def left_here() -> list[Path]:
        checkout_and_state = with_secrets(secrets, stack.project, lab.scratch / "backend")
        return checkout_and_state + with_secrets((*secrets, *kubeconfigs), tmp_path)

    before = sorted(own.rglob("*"))
    lab.mirror.slow(phase == DOWNLOAD)
    begun = has_begun(lab, phase, temporary)
    with background_up(stack) as process:
        wait_for(phase, lambda: begun() or process.poll() is not None)
    said = output_file(stack).read_text()
    # A task may have removed the provider's copy before it was seen here; then `up` has ended.
    assert process.returncode == -signal.SIGKILL or phase == PROVIDER, said
    lab.mirror.slow(False)
    left = copies(temporary)
    assert [path for path in left_here() if path not in left] == []
    on_host = f"grep -rlIF -e {shlex.quote(PASSWORD)} -e {key} {OF_USERS} || true"
    assert lab.host.shell(on_host) == ""
    if then == "up":
        stack.up()
        assert not [path for path in left if path.exists()]
    stack.destroy()
    assert left_here() == []
    assert sorted(own.rglob("*")) == before
