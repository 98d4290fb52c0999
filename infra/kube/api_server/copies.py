"""Removes the copies of the kubeconfig that Pulumi's Kubernetes provider leaves behind.

Each time that it starts, for a preview too, pulumi-kubernetes writes the kubeconfig that it was
given into a file `kubeconfig1234567890` of the folder for temporary files, for Helm, and removes
none (4.25.0, `writeKubeconfigToFile` in provider/pkg/provider/util.go). Whoever reads such a file
can do anything in the cluster. The resources of this project do not need it: Helm releases get the
kubeconfig in another way.
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
_LONG = 40  # letters; names of programs and of users are shorter


def remove_copies(access: Access, folder: Path | None = None) -> None:
    """Remove each copy of the stack's own kubeconfig that belongs to this user.

    One that is the user's own file (`kubeconfig_path`) is not looked for: another project may have
    copies of the same file.

    Args:
        access: of the stack.
        folder: in which to look; None: the one for temporary files.
    """
    if access.kubeconfig_path:
        return
    candidates = _candidates(folder or Path(tempfile.gettempdir()))
    if not candidates:  # as mostly: up to twenty tasks of one `up` look here
        return
    content = access.content()
    secrets = _secrets(content)
    clusters = [part(each, "cluster") for each in parts(content, "clusters")]
    authority = next((str(each.get("certificate-authority-data") or "") for each in clusters), "")
    if not secrets or not authority:
        return
    for path in candidates:
        with suppress(OSError, ValueError):  # gone meanwhile, or something else
            text = path.read_text()
            if authority in text and _secrets(Access(text).content()) == secrets:
                path.unlink()


def _candidates(folder: Path) -> list[Path]:
    """Files of this user that have such a name; no links."""
    try:
        return [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and _is_mine(path)]
    except OSError:  # the folder cannot be listed
        return []


def _is_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:  # another program has just removed it
        return False
    is_small_file = stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST_BYTES
    return is_small_file and found.st_uid == os.getuid()


def _secrets(content: Json) -> frozenset[str]:
    """The long texts among the users of a kubeconfig: keys, certificates, tokens, programs."""
    return frozenset(text for text in _texts(content.get("users")) if len(text) >= _LONG)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(cast(Json, value).values()))
    elif isinstance(value, list):
        for each in cast(list[object], value):
            yield from _texts(each)
