"""Reads and writes one repository of an image registry, by the protocol of all registries.

https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md
"""

import json
import re
import time
from urllib.parse import urlencode, urlsplit

from infra.command_line import Say
from infra.image.oci import MANIFEST_TYPE, Blob, Image, config_digest, image_at_node
from infra.image.registry.connection import Access, Connection, CutError
from infra.image.registry.sending import sending

MANIFEST_TYPES = (MANIFEST_TYPE, "application/vnd.docker.distribution.manifest.v2+json")
ATTEMPTS = 4
PAUSE_SECONDS = 2


class Repository:
    """A client of one repository. `Connection` sends its requests."""

    def __init__(self, access: Access) -> None:
        self._server = Connection(access)
        self.error = self._server.error

    def image(self, tag: str) -> Image | None:
        """Return the image with a tag, without its layers' content; None if there is none.

        Raises:
            RegistryError: the tag is no image but, for example, an index of several platforms, or
                something else than the registry has answered, or the answer is damaged.
        """
        accept = {"Accept": ", ".join(MANIFEST_TYPES)}
        answer = self._server.ask("GET", f"manifests/{tag}", headers=accept)
        if answer.status == 404:
            return None
        self._server.expect(answer, f"read {tag}", 200)
        try:
            is_index = not json.loads(answer.data).get("config")
            digest = "" if is_index else config_digest(answer.data)
        except (ValueError, AttributeError, KeyError, TypeError):
            raise self._server.error(
                f"the answer for {tag} is no manifest of an image. Look for a proxy before the "
                "registry that answers in its place"
            ) from None
        if is_index:
            raise self._server.error(
                f"{tag} is no image of one platform, so disttrain did not make it"
            )
        config = self._server.ask("GET", f"blobs/{digest}")
        self._server.expect(config, f"read the configuration of {tag}", 200)
        image = image_at_node(answer.data, config.data)
        if image.config.digest != digest:
            raise self._server.error(
                f"the answer for the configuration of {tag} is not the content with the digest "
                f"{digest}. Look for a proxy before the registry that answers in its place"
            )
        return image

    def lacks(self, digest: str) -> bool:
        """Whether the registry does not have a blob."""
        answer = self._server.ask("HEAD", f"blobs/{digest}")
        if answer.status != 404:
            self._server.expect(answer, f"look for {digest}", 200)
        return answer.status == 404

    def push_blob(self, part: Blob, say: Say) -> None:
        """Send a blob. If the connection breaks, the upload goes on where the registry stopped.

        Raises:
            RegistryError: the registry refused it, or the connection broke in all attempts.
        """
        location = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                location, start = self._continue(location)
                if start:
                    say(f"image: going on after {start / 1e6:,.1f} MB")
                self._send(location, part, start, say)
                return
            except CutError as cut:
                if attempt == ATTEMPTS:
                    what = f"{part.digest} could not be sent in {ATTEMPTS} attempts ({cut})"
                    raise self._server.error(f"{what}; run `pulumi up` again") from None
                say(f"image: the registry broke off ({cut})")
                location = location if cut.may_go_on else ""
                time.sleep(PAUSE_SECONDS)

    def push_image(self, tag: str, image: Image) -> None:
        """Send the manifest of an image whose blobs are there, and read it again under its tag."""
        content = image.manifest.read()
        kind = json.loads(content).get("mediaType", MANIFEST_TYPE)
        answer = self._server.ask(
            "PUT", f"manifests/{tag}", body=content, headers={"Content-Type": kind}
        )
        self._server.expect(answer, f"name the image {tag}", 201)
        there = self.image(tag)
        if there is None or there.manifest.digest != image.manifest.digest:
            raise self._server.error(
                f"after the push {tag} is not the image that was sent ({image.manifest.digest})"
            )

    def _begin(self) -> str:
        answer = self._server.ask(
            "POST", "blobs/uploads/", headers={"Content-Length": "0"}, cuts=True
        )
        self._server.expect(answer, "begin an upload", 202)
        return self._server.location(answer)

    def _continue(self, location: str) -> tuple[str, int]:
        """Return the address where an upload goes on, and the byte from which it goes on.

        If the upload cannot go on, a new one is begun.
        """
        if not location:
            return self._begin(), 0
        answer = self._server.ask("GET", location, cuts=True)
        last = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
        # A registry that has received nothing may answer 0-0, which also means one byte.
        if answer.status not in (200, 204) or last is None or last[1] == "0":
            return self._begin(), 0
        return self._server.location(answer), int(last[1]) + 1

    def _send(self, location: str, part: Blob, start: int, say: Say) -> None:
        if start < part.size_bytes:
            with sending(part, start, say) as stream:
                headers = {
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(part.size_bytes - start),
                }
                if start:
                    headers["Content-Range"] = f"{start}-{part.size_bytes - 1}"
                answer = self._server.ask(
                    "PATCH", location, body=stream, headers=headers, cuts=True
                )
            if start and answer.status == 416:
                # When the registry told its position, it was still writing what it had received.
                raise CutError("it has come further than it said")
            self._server.expect(answer, "take a layer", 202, 204)
            location = self._server.location(answer)
        joint = "&" if urlsplit(location).query else "?"
        end = f"{location}{joint}{urlencode({'digest': part.digest})}"
        answer = self._server.ask("PUT", end, headers={"Content-Length": "0"}, cuts=True)
        if start and answer.status == 400:
            raise CutError("the parts before and after the cut do not fit", may_go_on=False)
        self._server.expect(answer, f"finish {part.digest}", 201)
