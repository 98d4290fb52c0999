"""Lists the Debian and Python packages of an image as a CycloneDX 1.6 document.

The formats are those of https://cyclonedx.org/docs/1.6/json/ and
https://github.com/package-url/purl-spec. The document holds no time and no random number, so the
same image gives the same document.
"""

import io
import tarfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from email.message import Message
from email.parser import Parser
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from infra.image.oci import COPY_BYTES, Blob, Image

OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
DPKG_STATUS = "var/lib/dpkg/status"
DPKG_FOLDER = "var/lib/dpkg/status.d"  # one file for each package, in images without dpkg
Fetch = Callable[[str], AbstractContextManager[IO[bytes]]]
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


def sbom(reference: str, image: Image, fetch: Fetch | None = None) -> dict[str, Any]:
    """Return the document for an image.

    Args:
        reference: the image's name, `repository:tag`, for the document's subject.
        image: the image, from an OCI layout or from a node.
        fetch: gives the content of a blob that is only at the node, by its digest.

    Raises:
        ValueError: a layer is damaged or compressed in a way that Python cannot read, or no
            package was found in the image, because its base image is of an unknown kind.
    """
    files = package_files(image.layers, fetch)
    components = [*debian_components(files), *python_components(files)]
    if not components:
        raise ValueError(f"{reference}: no dpkg database and no Python package in it")
    unique = {component["bom-ref"]: component for component in components}
    repository, _, tag = reference.rpartition(":")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, image.manifest.digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": image.manifest.digest,
                "name": repository,
                "version": tag,
                "hashes": [_sha256(image.manifest)],
            }
        },
        "components": [unique[ref] for ref in sorted(unique)],
    }


def package_files(layers: Iterable[Blob], fetch: Fetch | None) -> dict[str, str]:
    """Return `{path: text}` of the files that say what is installed, with all layers applied."""
    found: dict[str, str] = {}
    for layer in layers:
        gone: list[str] = []
        here: dict[str, str] = {}
        for path, text in _read(layer, fetch):
            name = path.rpartition("/")[2]
            if name == _OPAQUE:
                gone.append(path.removesuffix(_OPAQUE))
            elif name.startswith(_WHITEOUT):
                hidden = path.removesuffix(name) + name.removeprefix(_WHITEOUT)
                gone += [hidden, f"{hidden}/"]
            else:
                here[path] = text
        kept = {
            path: text
            for path, text in found.items()
            if not any(path == g or (g.endswith("/") and path.startswith(g)) for g in gone)
        }
        found = {**kept, **here}
    return found


def debian_components(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the installed Debian packages, without licences, which dpkg does not know."""
    release = _os_release(files)
    distribution = release.get("ID", "debian")
    qualifier = f"{distribution}-{release['VERSION_ID']}" if "VERSION_ID" in release else ""
    texts = [
        text
        for path, text in files.items()
        if path == DPKG_STATUS or path.startswith(f"{DPKG_FOLDER}/")
    ]
    found: list[dict[str, Any]] = []
    for package in (stanza for text in texts for stanza in _stanzas(text)):
        if package.get("Status", "install ok installed").split()[-1] != "installed":
            continue
        name, version = package["Package"], package["Version"]
        purl = f"pkg:deb/{distribution}/{quote(name)}@{quote(version)}"
        purl += f"?arch={package['Architecture']}"
        purl += f"&distro={quote(qualifier)}" if qualifier else ""
        found.append(_component(name, version, purl))
    return found


def python_components(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the Python packages of all environments in the image, with the licence they state."""
    found: list[dict[str, Any]] = []
    for path in sorted(path for path in files if path.endswith(".dist-info/METADATA")):
        metadata = Parser().parsestr(files[path], headersonly=True)
        name, version = metadata["Name"], metadata["Version"]
        purl = f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}"
        component = _component(name, version, purl)
        licences = _licences(metadata)
        found.append({**component, **({"licenses": licences} if licences else {})})
    return found


def _licences(metadata: Message) -> list[dict[str, Any]]:
    """Return the licences of a Python package.

    It is the expression of PEP 639, or else the free text if it is a name and not a whole licence,
    or else what the classifiers say.
    """
    if expression := metadata["License-Expression"]:
        return [{"expression": expression}]
    text = str(metadata["License"] or "").strip()
    if text and "\n" not in text and text.upper() != "UNKNOWN":
        return [{"license": {"name": text}}]
    classifiers = (str(line).split(" :: ") for line in metadata.get_all("Classifier") or [])
    names = (parts[-1] for parts in classifiers if parts[0] == "License" and len(parts) > 2)
    return [{"license": {"name": name}} for name in names]


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _read(layer: Blob, fetch: Fetch | None) -> Iterator[tuple[str, str]]:
    """Yield `(path, text)` of the files of interest in a layer. A whiteout has an empty text."""
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    for name, member, text in _entries(layer, fetch, _of_interest):
        if PurePosixPath(name).name.startswith(_WHITEOUT):
            yield name, ""
        elif _of_interest(name) and member.islnk():
            links[name] = _plain(member.linkname)
        elif text is not None:
            texts[name] = text
    yield from texts.items()
    # A hard link has no content. Its file comes before it, and a stream cannot go back.
    if sought := {*links.values()} - texts.keys():
        found = _entries(layer, fetch, sought.__contains__)
        texts |= {name: text for name, _, text in found if text is not None}
    for name, target in links.items():
        if target not in texts:
            raise ValueError(f"layer {layer.digest}: it lacks {target}, to which {name} is a link")
        yield name, texts[target]


def _entries(
    layer: Blob, fetch: Fetch | None, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, tarfile.TarInfo, str | None]]:
    """Yield each entry of a layer: its path, its header, and the text if it is a wanted file."""
    is_tar = False
    try:
        with _opened(layer, fetch) as tar:
            is_tar = True
            for member in tar:
                name = _plain(member.name)
                content = tar.extractfile(member) if member.isreg() and is_wanted(name) else None
                yield name, member, content.read().decode(errors="replace") if content else None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        if is_tar:
            raise ValueError(f"layer {layer.digest}: it is damaged ({error})") from error
        raise ValueError(
            f"layer {layer.digest}: it is no tar, and none that is compressed with gzip, bzip2 or "
            "xz. If it is compressed with zstd, list the image with another program, such as syft"
        ) from error


def _plain(path: str) -> str:
    """Return a path of a tar without `/` or `./` at its beginning."""
    return str(PurePosixPath("/", path))[1:]


@contextmanager
def _opened(layer: Blob, fetch: Fetch | None) -> Iterator[tarfile.TarFile]:
    if isinstance(layer.content, bytes):
        with tarfile.open(fileobj=io.BytesIO(layer.content)) as tar:
            yield tar
    elif layer.content:
        with tarfile.open(layer.content) as tar:  # skips the contents between headers
            yield tar
    else:
        assert fetch, f"{layer.digest} is not on this machine"
        with (
            fetch(layer.digest) as stream,
            tarfile.open(fileobj=stream, mode="r|*", bufsize=COPY_BYTES) as tar,
        ):
            yield tar


def _of_interest(path: str) -> bool:
    return (
        path in (*OS_RELEASE, DPKG_STATUS)
        or path.startswith(f"{DPKG_FOLDER}/")
        or path.endswith(".dist-info/METADATA")
    )


def _os_release(files: Mapping[str, str]) -> dict[str, str]:
    text = next((files[path] for path in OS_RELEASE if path in files), "")
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def _stanzas(text: str) -> Iterator[Message]:
    """Yield the paragraphs of a Debian control file. They have the form of a mail's headers."""
    for paragraph in text.split("\n\n"):
        if paragraph.strip():
            yield Parser().parsestr(paragraph.strip("\n"), headersonly=True)


def _sha256(part: Blob) -> dict[str, str]:
    return {"alg": "SHA-256", "content": part.digest.removeprefix("sha256:")}
