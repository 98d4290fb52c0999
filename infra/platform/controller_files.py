"""Downloads the manifests of controllers to the machine that runs Pulumi.

The files are kept in the cache by their checksums, so that a second preview needs no network. Some
controllers come by a Helm chart instead, and need no files here.
"""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pulumi
import yaml

from infra.airgap.download import DownloadAccess, DownloadError, download
from infra.command_line import cache_folder, without_passwords
from infra.controllers import CONTROLLERS
from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.controllers.manifests import objects_of
from infra.objects import Manifest
from infra.settings import PlatformSettings, ProxySettings
from infra.settings.controllers import MANIFESTS, ControllerSettings


async def controller_objects(settings: PlatformSettings) -> dict[str, list[Manifest]]:
    """Read the objects of each controller that is installed from manifests.

    Returns:
        The objects by the controller's name.

    Raises:
        pulumi.RunError: a file cannot be read or downloaded, or its checksum is not the pinned one.
    """
    access = download_access(settings.proxy, os.environ)
    found = dict[str, list[Manifest]]()
    for each in settings.controllers:
        kind = CONTROLLERS[each.name]
        if kind.files:
            found[each.name] = await asyncio.to_thread(read_objects, kind, each, access)
    return found


def download_access(proxy: ProxySettings, environment: Mapping[str, str]) -> DownloadAccess:
    """Choose the proxy with which this machine downloads, and the authorities that it trusts.

    The settings `httpProxy`, `httpsProxy` and `noProxy` come before the variables of the
    environment, as they do when the image is built.
    """
    named = {"http_proxy": proxy.http, "https_proxy": proxy.https}
    given = {name: value.text for name, value in named.items() if value}
    if not given:
        return DownloadAccess(environment, proxy.ca_bundle)
    others = {name: value for name, value in environment.items() if name.lower() not in given}
    others = {name: value for name, value in others.items() if name.lower() != "no_proxy"}
    return DownloadAccess({**others, **given, "no_proxy": proxy.no_proxy}, proxy.ca_bundle)


def read_objects(
    kind: ControllerKind, settings: ControllerSettings, access: DownloadAccess
) -> list[Manifest]:
    """Read the objects of one controller, from the user's folder or from its project's addresses.

    Raises:
        pulumi.RunError: a file cannot be read or downloaded, its checksum is not the pinned one, or
            it is not YAML.
    """
    assert isinstance(kind.source, PinnedManifests), kind.name
    texts: list[str] = []
    for file in kind.source.files:
        if settings.manifests:
            path = Path(settings.manifests) / file.name
            texts.append(_given(kind, file, path))
        else:
            texts.append(_cached(kind, file, access))
    try:
        return objects_of(kind, texts)
    except yaml.YAMLError as error:  # Happens only if a wrong file is pinned.
        raise pulumi.RunError(f"{kind.setting}: its manifests cannot be read: {error}") from None


def _given(kind: ControllerKind, file: PinnedFile, path: Path) -> str:
    key = f"{MANIFESTS}.{kind.name}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise pulumi.RunError(
            f"{key}: {str(path.parent)!r} cannot be used: {file.name} cannot be read there "
            f"({error.strerror}). Download it from {file.address}"
        ) from None
    if (got := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise pulumi.RunError(
            f"{key}: {str(path.parent)!r} cannot be used: {file.name} there has the sha256 {got}, "
            f"and that of {kind.title} {kind.version} has {file.sha256}. Download it from "
            f"{file.address}"
        )
    return content.decode()


def _cached(kind: ControllerKind, file: PinnedFile, access: DownloadAccess) -> str:
    """Read the file from the cache; download it first if it is missing there, or damaged."""
    path = cache_folder() / "manifests" / file.sha256
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == file.sha256:
            return content.decode()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        fresh = Path(scratch) / file.name
        try:
            download(file.address, fresh, file.sha256, access)
        except DownloadError as error:
            raise pulumi.RunError(_not_downloaded(kind, file, str(error))) from None
        fresh.replace(path)
    return path.read_text()


def _not_downloaded(kind: ControllerKind, file: PinnedFile, reason: str) -> str:
    return (
        f"{kind.setting} cannot be used: a file of {kind.title} {kind.version} could not be had, "
        f"{without_passwords(reason)}. Let this machine reach that address (httpsProxy and "
        f"caBundle count for it too, and so do the variables HTTPS_PROXY and SSL_CERT_FILE); or "
        f"put {_all_files(kind, file)} into a folder and set {MANIFESTS}.{kind.name} to it; or "
        f"take {kind.name} out of controllers"
    )


def _all_files(kind: ControllerKind, file: PinnedFile) -> str:
    others = len(kind.files) - 1
    return f"{file.name}{f' and its {others} other files' if others else ''}"
