"""What is said if a registry, or a proxy before it, does not answer as the protocol demands."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import urllib3

from infra.image.oci import CONFIG_TYPE, as_json, blob, descriptor, image_at_node
from infra.image.registry import connection
from infra.image.registry.connection import Access, RegistryError
from infra.image.registry.repository import Repository

PLACE = {"Location": "/v2/team/trainer/blobs/uploads/1"}
Answers = Mapping[str, tuple[int, Mapping[str, str], bytes]]
Serve = Callable[[Answers], Repository]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Return a function that gives a repository, whose registry answers each method, or what is
    asked for by it, with a status, headers and a body.
    """

    def start(answers: Answers) -> Repository:
        class Pool:
            def request(self, method: str, url: str, **_more: Any) -> urllib3.HTTPResponse:
                status, headers, body = answers.get(method) or answers[url.split("/")[-2]]
                return urllib3.HTTPResponse(body, headers=headers, status=status)

        monkeypatch.setattr(connection, "_pool", lambda *_: Pool())
        return Repository(Access("registry.example.org/team/trainer"))

    return start


@pytest.mark.parametrize(
    "answers",
    [
        {"POST": (202, {}, b"")},
        {"POST": (202, PLACE, b""), "PATCH": (202, {}, b"")},
        {"POST": (202, {"Location": "https://[::1/upload"}, b"")},
    ],
    ids=["POST", "PATCH", "no address"],
)
def test_upload_without_place_is_plain(serve: Serve, answers: Answers) -> None:
    """If the registry does not say where to upload, the error names the missing header Location and
    the repository. Otherwise the push would end with a traceback.
    """
    words = r"imageRepository: 'registry\.example\.org/team/trainer': .* \(header Location\)"
    with pytest.raises(RegistryError, match=words):
        serve(answers).push_blob(blob(b"layer"), print)


@pytest.mark.parametrize("body", [b"<html>Log in, please</html>", b"[]", b'{"config": 1}'])
def test_answer_without_manifest_is_plain(serve: Serve, body: bytes) -> None:
    """An answer that is no manifest, such as the login page of a proxy, ends in an error that says
    so.
    """
    with pytest.raises(RegistryError, match="the answer for 1-2 is no manifest of an image"):
        serve({"GET": (200, {}, body)}).image("1-2")


def test_configuration_must_have_its_digest(serve: Serve) -> None:
    """A configuration with other content than its digest says, such as the login page of a proxy,
    is refused. It would become the configuration of the image that is pushed next.
    """
    right = blob(b'{"os": "linux"}')
    manifest = as_json({"config": descriptor(CONFIG_TYPE, right), "layers": []})
    answers = {"manifests": (200, {}, manifest), "blobs": (200, {}, right.read())}
    assert serve(answers).image("1-2") == image_at_node(manifest, right.read())
    answers["blobs"] = (200, {}, b"<html>Log in, please</html>")
    with pytest.raises(RegistryError, match=f"configuration of 1-2 .* digest {right.digest}"):
        serve(answers).image("1-2")


def test_index_of_platforms_is_refused(serve: Serve) -> None:
    """An index of images for several platforms, which somebody has pushed under the tag of the
    trainer image, is refused.
    """
    with pytest.raises(RegistryError, match="1-2 is no image of one platform"):
        serve({"GET": (200, {}, b'{"manifests": []}')}).image("1-2")


def test_error_names_stack_that_sets_repository() -> None:
    """A run on the platform of another stack has no imageRepository, so the error names the owner.

    Its push uses the proxy of the user's shell, to which the setting noProxy does not apply.
    """
    access = Access("127.0.0.1:1/team/trainer")
    theirs = replace(access, owner="dev")
    for given, start, advice in (
        (access, "imageRepository: '127.0.0.1:1/team/trainer': ", "add it to noProxy"),
        (
            theirs,
            "imageRepository of stack dev: '127.0.0.1:1/team/trainer': ",
            "add it to the variable NO_PROXY",
        ),
    ):
        with pytest.raises(RegistryError) as failure:
            Repository(given).image("1-2")
        assert str(failure.value).startswith(start)
        assert str(failure.value).endswith(advice)
