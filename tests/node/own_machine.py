"""A test host on which Pulumi itself runs, so that the program regards it as its own machine.

The engine, its plugins and Python are those of the tests; the host has them under the same paths.
They run in the host's namespaces as its root user, so a stack with `host: local` changes this host.
"""

import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from sandbox.cache import cache_dir
from sandbox.stack import Stack
from sandbox.venvs import PROJECT
from tests.node.host import Host
from tests.node.lab import PLATFORM, VERSION, Lab

HERE, THERE = "192.0.2.1", "192.0.2.2"  # reserved for documentation, so no network uses them
LINK = "between"
# The prefixes where the host has programs of its own.
OF_THE_SYSTEM = ("/usr", "/usr/local")


def python() -> list[Path]:
    """Return the paths of the Python that has made the virtual environments, which they need."""
    if sys.base_prefix not in OF_THE_SYSTEM:
        return [Path(sys.base_prefix)]
    library = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    program = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    needed = [Path(sysconfig.get_path("stdlib")), program.resolve(), library]
    return [path for path in needed if path.exists()]


class OwnMachine:
    """The host, and a link to the host of another lab. The caller has to close it.

    Args:
        scratch: the folder for all files.
        other: the lab of the other machine.
    """

    def __init__(self, scratch: Path, other: Lab) -> None:
        self.lab = Lab(scratch, also=(scratch, PROJECT, cache_dir(), *python()))
        self.other = other
        self._programs = scratch / "programs"
        self._programs.mkdir()
        self._connect()

    def _connect(self) -> None:
        here, there = self.lab.host, self.other.host
        peer = ("type", "veth", "peer", "name", LINK, "netns", str(there.pid))
        _ip(here, "link", "add", LINK, *peer)
        for host, address in ((here, HERE), (there, THERE)):
            _ip(host, "address", "add", f"{address}/24", "dev", LINK)
            _ip(host, "link", "set", LINK, "up")

    def stack(self, **changes: str) -> Stack:
        """Return a stack with a platform on the machine on which its `pulumi` runs."""
        mirror = {"k3sVersion": VERSION, "k3sMirror": self.lab.mirror.url}
        stack = self.lab.new_stack({**PLATFORM, "host": "local", **mirror, **changes})
        real = shutil.which("pulumi", path=stack.environment["PATH"])
        enter = shlex.join(self.lab.host.enter("/bin/sh", "-c", 'cd "$0" && exec "$@"'))
        wrapper = self._programs / "pulumi"
        wrapper.write_text(f'#!/bin/sh\nexec {enter} "$PWD" {real} "$@"\n')
        wrapper.chmod(0o755)
        stack.environment["PATH"] = f"{self._programs}:{stack.environment['PATH']}"
        # The provider leaves its kubeconfigs in the folder for temporary files.
        stack.environment["TMPDIR"] = str(self._programs)
        return stack

    def move_to(self, stack: Stack, address: str = "") -> None:
        """Let the settings name the host at HERE or THERE, over SSH, or else the local machine."""
        lab = self.other if address == THERE else self.lab
        over_ssh = {"sshHost": address, "sshHostKey": lab.host_key}
        for key, value in over_ssh.items():
            stack.set(key, value if address else None)
        if address:
            stack.set("sshPrivateKey", lab.private_key, secret=True)
        stack.set("host", "ssh" if address else "local")

    def cut(self, lab: Lab) -> None:
        """Cut the link of this lab's machine."""
        _ip(lab.host, "link", "set", LINK, "down")

    def mend(self, lab: Lab) -> None:
        """Restore the link of this lab's machine."""
        _ip(lab.host, "link", "set", LINK, "up")

    def close(self) -> None:
        """End the host.

        The link is deleted first. The kernel would delete it only some time after the host's end.
        """
        _ip(self.lab.host, "link", "del", LINK)
        self.lab.close()


def _ip(host: Host, *words: str) -> None:
    enter = ("nsenter", "--target", str(host.pid), "--net", "ip")
    subprocess.run([*enter, *words], check=True, capture_output=True)
