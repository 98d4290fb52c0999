"""A virtual machine with Debian's kernel, in QEMU without hardware virtualization.

The guest sees Python, the checkout and the unpacked packages as read-only folders of this machine.
It has no network to the outside, and its disk is a file that is removed with it.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sandbox.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
MEMORY_MIB = 1024
DISK_BYTES = 256 << 20
BOOT_SECONDS = 300
OVER_SECONDS = 60  # how long the guest has after a call's time to answer where it was interrupted
TAIL_LINES = 40


class Machine:
    """A guest that runs until `close`.

    Args:
        packages: the folder that tests.vm.debian gives.
        scratch: an empty folder for the guest's files.
    """

    def __init__(self, packages: Path, scratch: Path) -> None:
        begin = time.monotonic()
        self._console = scratch / "console.log"
        disk, port = scratch / "disk", scratch / "agent"
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", str(disk)], check=True)
        words = (
            # QEMU ends if the process that has started it is killed.
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"),
            *("-accel", "tcg,thread=multi", "-smp", "2", "-m", str(MEMORY_MIB)),
            *("-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"),
            *("-kernel", str(next((packages / "boot").glob("vmlinuz-*")))),
            *("-initrd", str(initial_files(packages, scratch))),
            *("-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off"),
            *("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"),
            *("-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"),
            *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
            *("-serial", f"file:{self._console}", "-serial", f"unix:{port},server=on,wait=on"),
        )
        with (scratch / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log)
        self._port = socket.socket(socket.AF_UNIX)
        try:
            wait_until("QEMU", lambda: self._missing(port, scratch), timeout_seconds=30)
            self._port.connect(str(port))
            self._answers = self._port.makefile("r")
            self._answer(BOOT_SECONDS)
        except BaseException:
            self.close()
            raise
        self.boot_seconds = time.monotonic() - begin

    def call(self, function: str, seconds: int, **words: Any) -> Any:
        """Call `module:function` in the guest, and return its result.

        Raises:
            RuntimeError: the function failed; the text has the guest's traceback and last lines.
        """
        request = json.dumps({"call": function, "words": words, "seconds": seconds})
        self._port.sendall(request.encode() + b"\n")
        return self._answer(seconds + OVER_SECONDS)

    def close(self) -> None:
        """End the guest."""
        self._port.close()
        self._process.kill()
        self._process.wait()

    def _answer(self, seconds: float) -> Any:
        self._port.settimeout(seconds)
        try:
            line = self._answers.readline()
        except TimeoutError:
            line = ""
        if not line:
            raise RuntimeError(f"no answer of the guest in {seconds:g} s\n{self._last_lines()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}\n{self._last_lines()}")
        return answer["value"]

    def _missing(self, port: Path, scratch: Path) -> str | None:
        if self._process.poll() is not None:
            raise RuntimeError(f"QEMU has ended: {(scratch / 'qemu.log').read_text()}")
        return None if port.exists() else "it has not opened the serial port"

    def _last_lines(self) -> str:
        lines = self._console.read_text(errors="replace").splitlines()
        return "\n".join(["the guest's console:", *lines[-TAIL_LINES:]])


def initial_files(packages: Path, scratch: Path) -> Path:
    """Make the archive (initramfs) from which the kernel starts: busybox, modules, `guest/init`.

    Return the path of the archive.
    """
    root = scratch / "initial"
    for name in ("dev", "etc", "host", "initial", "proc", "sys"):
        (root / name).mkdir(parents=True)
    shutil.copy(packages / "bin/busybox", root / "initial")
    for file in (packages / "modules.order").read_text().splitlines():
        kept = root / "modules" / file
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(packages / file, kept)
    shutil.copy(packages / "modules.order", root)
    shutil.copy(packages / "etc/netconfig", root / "etc")
    shown = {Path(path).resolve() for path in ("/usr", sys.prefix, sys.base_prefix, packages)}
    (root / "shown").write_text("".join(f"{path}\n" for path in sorted({*shown, CHECKOUT})))
    own = (CHECKOUT / "tests/vm/guest/init").read_text()
    first, rest = own.split("\n", 1)
    given = {"CHECKOUT": CHECKOUT, "PYTHON": sys.executable, "PACKAGES": packages}
    exports = "".join(f"export {name}='{value}'\n" for name, value in given.items())
    (root / "init").write_text(f"{first}\n{exports}{rest}")
    (root / "init").chmod(0o755)
    busybox = str(packages / "bin/busybox")
    pack = f"{busybox} find . | {busybox} cpio -o -H newc"
    archive = scratch / "initial.cpio"
    with archive.open("wb") as file:
        subprocess.run(
            ["sh", "-c", pack], cwd=root, stdout=file, stderr=subprocess.DEVNULL, check=True
        )
    return archive
