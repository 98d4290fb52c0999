"""A file system in user space (FUSE) that passes all on to a folder, and fails where a test says.

The kernel talks to it by the device /dev/fuse; linux/fuse.h has the messages. It answers one
request after the other, and lets the kernel cache nothing, so that it sees each act of a program.
It needs root for the mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
HEADER, ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
LARGEST_WRITE, LARGE_WRITES = 128 << 10, 1 << 5
ROOT = 1
MNT_FORCE, MNT_DETACH = 1, 2
# If this process is killed while it uses its own file system, its answering thread is gone, the
# kernel waits for an answer for ever, and the process cannot end. So this script, a process of its
# own, unmounts the file system when that thread is gone.
GUARDIAN = 'while [ -e "/proc/$0/task/$1" ]; do sleep 1; done; umount -f "$2"; umount -l "$2"'
# The kinds of requests of the kernel, by their numbers.
NAMES = {
    **{1: "lookup", 3: "getattr", 4: "setattr", 9: "mkdir", 10: "unlink", 11: "rmdir"},
    **{12: "rename", 14: "open", 15: "read", 16: "write", 17: "statfs", 18: "release"},
    **{20: "fsync", 25: "flush", 26: "init", 27: "opendir", 28: "readdir", 29: "releasedir"},
    **{30: "fsyncdir", 35: "create", 45: "rename2"},
}
WITHOUT_ANSWER = (2, 36, 42)  # forget, interrupt, batch forget
ENDS = ("init", "release", "releasedir", "flush")  # no program sees or checks their errors


@dataclass(frozen=True)
class Request:
    """One act of a program: its name, the path below the file system's root, and the PID."""

    act: str
    path: str
    process: int


Hook = Callable[[Request], None]
"""A function that is called before each act; it raises OSError if the act has to fail."""
Names = Callable[[Path], list[str]]
"""A function that gives the names in a folder, as this client sees them."""


def names_in(folder: Path) -> list[str]:
    """All names in the folder."""
    return [path.name for path in folder.iterdir()]


class FaultyFileSystem:
    """A file system that is mounted from its creation until `close`.

    Args:
        folder: the folder with the real files.
        target: an empty folder, which is the mount point.
        hook: see `Hook`.
        names: see `Names`.
    """

    def __init__(
        self,
        folder: Path,
        target: Path,
        hook: Hook = lambda request: None,
        names: Names | None = None,
    ) -> None:
        self._folder, self.target, self.hook = folder, target, hook
        self._names = names or names_in
        self._paths, self._numbers, self._listings = {ROOT: ""}, {"": ROOT}, dict[int, list[str]]()
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if LIBC.mount(b"faulty", str(target).encode(), b"fuse", 0, options.encode()):
            number = ctypes.get_errno()
            os.close(self._device)
            raise OSError(number, f"mount of {target}: {os.strerror(number)}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        who = (str(os.getpid()), str(self._thread.native_id), str(target))
        quiet = subprocess.DEVNULL
        self._guardian = subprocess.Popen(
            ["sh", "-c", GUARDIAN, *who], stdin=quiet, stdout=quiet, stderr=quiet
        )

    def close(self) -> None:
        """Unmount the file system, even if it is in use; the files stay in the folder."""
        with self._guardian as guardian:
            guardian.kill()
        LIBC.umount2(str(self.target).encode(), MNT_FORCE | MNT_DETACH)
        self._thread.join()
        os.close(self._device)

    def _serve(self) -> None:
        while True:
            try:
                message = os.read(self._device, LARGEST_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):  # the program has given up
                    continue
                return  # ENODEV: the file system is no longer mounted
            _, code, unique, node, _, _, process, _ = HEADER.unpack_from(message)
            if code in WITHOUT_ANSWER:
                continue
            number, body = 0, b""
            try:
                body = self._answer(NAMES.get(code, ""), node, process, message[HEADER.size :])
            except OSError as error:
                number = error.errno or errno.EIO
            answer = ANSWER.pack(ANSWER.size + len(body), -number, unique) + body
            try:
                os.write(self._device, answer)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):  # the program was killed
                    raise

    def _answer(self, act: str, node: int, process: int, body: bytes) -> bytes:
        if not act:
            raise OSError(errno.ENOSYS, "no such act here")
        path = self._paths.get(node, "")
        if act in ("lookup", "unlink", "rmdir"):
            path = _join(path, _text(body))
        elif act in ("mkdir", "create"):
            path = _join(path, _text(body[8 if act == "mkdir" else 16 :]))
        if act not in ENDS:
            self.hook(Request(act.removesuffix("2"), path, process))
        return getattr(self, f"_{act}")(path, body)

    def _real(self, path: str) -> Path:
        return self._folder / path

    def _number(self, path: str) -> int:
        number = self._numbers.setdefault(path, len(self._paths) + 1)
        self._paths[number] = path
        return number

    # --- what is in place ---

    def _init(self, _: str, body: bytes) -> bytes:
        _, minor, ahead, _ = struct.unpack_from("<IIII", body)
        given = (7, min(minor, 31), ahead, LARGE_WRITES, 0, 0, LARGEST_WRITE, 1, 0, 0, 0)
        return struct.pack("<IIIIHHIIHHI28x", *given)

    def _lookup(self, path: str, _: bytes) -> bytes:
        return struct.pack("<QQQQII", self._number(path), 0, 0, 0, 0, 0) + self._attributes(path)

    def _getattr(self, path: str, body: bytes) -> bytes:
        has_file, file = struct.unpack_from("<I4xQ", body)
        return struct.pack("<QII", 0, 0, 0) + self._attributes(path, file if has_file & 1 else None)

    def _attributes(self, path: str, file: int | None = None) -> bytes:
        found = os.lstat(self._real(path)) if file is None else os.fstat(file)
        times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
        parts = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        return ATTRIBUTES.pack(
            *(self._number(path), found.st_size, found.st_blocks, *times),
            *(part % 1_000_000_000 for part in parts),
            *(found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0),
        )

    def _setattr(self, path: str, body: bytes) -> bytes:
        valid, file, size = struct.unpack_from("<I4xQQ", body)
        (mode,) = struct.unpack_from("<I", body, 68)
        if valid & 8:
            os.truncate(file if valid & 64 else self._real(path), size)
        if valid & 1:
            self._real(path).chmod(stat.S_IMODE(mode))
        return struct.pack("<QII", 0, 0, 0) + self._attributes(path)

    def _mkdir(self, path: str, _: bytes) -> bytes:
        self._real(path).mkdir()
        return self._lookup(path, b"")

    def _unlink(self, path: str, _: bytes) -> bytes:
        self._real(path).unlink()
        return b""

    def _rmdir(self, path: str, _: bytes) -> bytes:
        self._real(path).rmdir()
        return b""

    def _rename(self, path: str, body: bytes, begin: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        names = body[begin:].split(b"\0")
        old, new = _join(path, names[0].decode()), _join(self._paths[target], names[1].decode())
        self._real(old).rename(self._real(new))
        for number, known in list(self._paths.items()):  # and all paths below it
            if known == old or known.startswith(f"{old}/"):
                self._numbers.pop(known, None)
                self._paths[number] = new + known[len(old) :]
                self._numbers[self._paths[number]] = number
        return b""

    def _rename2(self, path: str, body: bytes) -> bytes:
        return self._rename(path, body, 16)

    def _statfs(self, _: str, __: bytes) -> bytes:
        found = os.statvfs(self._folder)
        blocks = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<QQQQQIIII24x", *blocks, found.f_bsize, 255, found.f_frsize, 0)

    # --- open files and folders ---

    def _create(self, path: str, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        file = os.open(self._real(path), flags | os.O_CREAT, stat.S_IMODE(mode))
        return self._lookup(path, b"") + struct.pack("<QII", file, 0, 0)

    def _open(self, path: str, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        return struct.pack("<QII", os.open(self._real(path), flags & ~os.O_CREAT), 0, 0)

    def _read(self, _: str, body: bytes) -> bytes:
        file, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(file, size, offset)

    def _write(self, _: str, body: bytes) -> bytes:
        file, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(file, body[40 : 40 + size], offset), 0)

    def _fsync(self, _: str, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def _release(self, _: str, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def _flush(self, _: str, __: bytes) -> bytes:
        return b""

    def _opendir(self, path: str, _: bytes) -> bytes:
        number = max(self._listings, default=0) + 1
        self._listings[number] = self._names(self._real(path))
        return struct.pack("<QII", number, 0, 0)

    def _readdir(self, _: str, body: bytes) -> bytes:
        number, offset, size = struct.unpack_from("<QQI", body)
        entries = b""
        for place, name in enumerate(self._listings[number][offset:], offset + 1):
            raw = name.encode()
            entry = struct.pack("<QQII", place, place, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries

    def _releasedir(self, _: str, body: bytes) -> bytes:
        del self._listings[struct.unpack_from("<Q", body)[0]]
        return b""

    def _fsyncdir(self, path: str, _: bytes) -> bytes:
        folder = os.open(self._real(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return b""


def _text(body: bytes) -> str:
    return body.partition(b"\0")[0].decode()


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
