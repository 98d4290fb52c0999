"""How Debian's packages are installed and removed, with stand-ins for apt and dpkg."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.node.shell_program import script_text
from tests.unit.run_script import run_text

HEAD = """set -eu
fail() { echo "$1" >&2; exit 1; }
REMAINS=""
"""
# Like the real dpkg since version 1.18, it ends with 2 and these words if its lock is not free.
DPKG = """#!/bin/sh
left=$(cat FOLDER/busy 2>/dev/null || echo 0)
echo $((left - 1)) >FOLDER/busy
[ "$left" -le 0 ] || {
  echo "dpkg: error: dpkg frontend lock was locked by another process with pid 77" >&2
  exit 2
}
[ "$1" != --remove ] || rm -f FOLDER/installed
"""
QUERY = """#!/bin/sh
[ ! -e FOLDER/installed ] || echo "ii |nfs-common"
"""
# Each call is 100 s later than the one before, so that the test need not wait.
DATE = """#!/bin/sh
now=$(($(cat FOLDER/now 2>/dev/null || echo 0) + 100))
echo $now | tee FOLDER/now
"""
ENV = """#!/bin/sh
echo "$*" >>FOLDER/command-lines
exec REAL "$@"
"""
APT = """#!/bin/sh
echo "$0 $*" >>FOLDER/command-lines
echo "$http_proxy" >FOLDER/proxy
touch FOLDER/installed
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the stand-ins, which keep their state in files there."""
    env = ENV.replace("REAL", str(shutil.which("env")))
    programs = {"dpkg": DPKG, "dpkg-query": QUERY, "date": DATE, "env": env, "apt-get": APT}
    for name, text in {**programs, "sleep": "#!/bin/sh\n"}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("FOLDER", str(tmp_path)))
        path.chmod(0o755)
    return tmp_path


def run(folder: Path, command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a function of `lib/packages.sh`; `more` are variables."""
    script = f'{HEAD}NOTES="{folder}"\n{script_text("lib/packages.sh")}\n{command}\n'
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return run_text(script, "create", more, "user", path)


def test_removal_waits_for_an_upgrade_that_is_at_work(folder: Path) -> None:
    """The removal of packages waits while another program, such as an upgrade, has dpkg's lock.
    dpkg itself does not wait, and the packages would stay for good, "as others need them".
    """
    (folder / "packages").write_text("nfs-common\n")
    (folder / "installed").touch()
    (folder / "busy").write_text("2")
    done = run(folder, "remove_packages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (folder / "installed").exists()


def test_packages_that_cannot_be_removed_are_not_forgotten(folder: Path) -> None:
    """If dpkg's lock is not free in 300 s, the removal fails and keeps its list of packages for the
    next try.
    """
    (folder / "packages").write_text("nfs-common\n")
    (folder / "installed").touch()
    (folder / "busy").write_text("999")
    done = run(folder, "remove_packages")
    assert done.returncode == 1
    assert "at work with the packages of this host for 300 s" in done.stderr
    assert "these cannot be removed: nfs-common. Let it end" in done.stderr
    assert (folder / "packages").exists()


def test_password_of_a_proxy_is_on_no_command_line(folder: Path) -> None:
    """The proxy reaches apt, but its password is on no command line, because every user of the host
    can see command lines.
    """
    proxy = "http://user:hunter2@proxy.example.com:3128"
    done = run(folder, "install_package nfs-common nfs-utils nfs-client", HTTP_PROXY=proxy)
    assert done.returncode == 0, done.stderr
    assert (folder / "proxy").read_text() == f"{proxy}\n"
    assert "hunter2" not in (folder / "command-lines").read_text()
