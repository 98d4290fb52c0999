"""Removes the copies of the kubeconfig that Pulumi's Kubernetes provider leaves behind.

Each time that pulumi-kubernetes starts, also for a preview, it writes its kubeconfig for Helm into
a file such as `kubeconfig1234567890` in the folder for temporary files. It never removes these
files (4.25.0, `writeKubeconfigToFile` in provider/pkg/provider/util.go). Whoever can read such a
file can do anything in the cluster. The resources of this project do not need the files, because
Helm releases get the kubeconfig in another way.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from infra.kube.api_server.access import Access
from infra.kube.objects import Json, part, parts

_NAME = re.compile(r"kubeconfig\d+")
_LONGEST_BYTES = 1 << 20
_LONG = 40  # characters; names of programs and of users are shorter


def remove_copies(access: Access, folder: Path | None = None) -> None:
    """Remove the copies of the stack's kubeconfig that belong to the user of this process.

    Nothing is removed if the stack uses a kubeconfig file of the user (`kubeconfig_path`), because
    another project may have made copies of the same file.

    Args:
        access: the kubeconfig of the stack.
        folder: the folder with the copies; None: the folder for temporary files.
    """
    if access.kubeconfig_path:
        return
    candidates = _candidates(folder or Path(tempfile.gettempdir()))
    if not candidates:  # This is the usual case, as up to twenty tasks of one `up` come here.
        return
    content = access.content()
    secrets = _secrets(content)
    clusters = [part(each, "cluster") for each in parts(content, "clusters")]
    authority = next((str(each.get("certificate-authority-data") or "") for each in clusters), "")
    if not secrets or not authority:
        return
    for path in candidates:
        with suppress(OSError, ValueError):  # The file is gone meanwhile, or is no kubeconfig.
            text = path.read_text()
            if authority in text and _secrets(Access(text).content()) == secrets:
                path.unlink()


def _candidates(folder: Path) -> list[Path]:
    """The regular files of this user whose names are those of such copies."""
    try:
        return [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and _is_mine(path)]
    except OSError:  # The folder cannot be listed.
        return []


def _is_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:  # Another program has just removed the file.
        return False
    is_small_file = stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_BYTES
    return is_small_file and found.st_uid == os.getuid()


def _secrets(content: Json) -> frozenset[str]:
    """The long texts in a kubeconfig's `users`: keys, certificates, tokens, programs."""
    return frozenset(text for text in _texts(content.get("users")) if len(text) >= _LONG)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(cast(Json, value).values()))
    elif isinstance(value, list):
        for each in cast(list[object], value):
            yield from _texts(each)
