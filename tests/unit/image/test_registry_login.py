"""Which login a push uses, from the files of docker and podman and from docker's credential
helpers.
"""

import json
import os
from base64 import b64decode
from pathlib import Path

import pytest

from infra.image.registry.login import Login, find_login, pull_config
from infra.image.registry.proxies import proxy_of

REPOSITORY = "registry.example.org:5000/team/trainer"


@pytest.fixture(autouse=True)
def podman_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the folder that podman uses without XDG_RUNTIME_DIR by an empty one; return it."""
    folder = tmp_path / "run-containers"
    monkeypatch.setattr("infra.image.registry.login.PODMAN_FOLDER", folder)
    return folder


def auth(user: str, password: str) -> dict[str, str]:
    """Return the entry for a login."""
    return {"auth": Login(user, password).encoded}


def write(file: Path, content: object) -> None:
    """Write the content as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))


def test_without_a_file_there_is_no_login(tmp_path: Path) -> None:
    assert find_login(REPOSITORY, {}, tmp_path) is None


def test_closest_entry_of_podman_comes_before_docker(tmp_path: Path) -> None:
    """podman's files come before docker's, a file that REGISTRY_AUTH_FILE names before both, and
    the entry for the longest part of the repository's name before others.
    """
    write(
        tmp_path / ".docker" / "config.json",
        {"auths": {"registry.example.org:5000": auth("docker", "a:b")}},
    )
    assert find_login(REPOSITORY, {}, tmp_path) == Login("docker", "a:b")
    write(
        tmp_path / "run" / "containers" / "auth.json",
        {"auths": {
            "registry.example.org:5000": auth("host", "1"),
            "registry.example.org:5000/team": auth("team", "2"),
        }},
    )  # fmt: skip
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert find_login(REPOSITORY, environment, tmp_path) == Login("team", "2")
    own = tmp_path / "own.json"
    write(own, {"auths": {"registry.example.org:5000": auth("own", "3")}})
    environment["REGISTRY_AUTH_FILE"] = str(own)
    assert find_login(REPOSITORY, environment, tmp_path) == Login("own", "3")
    assert find_login("other.example.org/a/b", environment, tmp_path) is None


def test_podmans_files_without_runtime_folder(tmp_path: Path, podman_folder: Path) -> None:
    """Without XDG_RUNTIME_DIR, as for root or below sudo, a login is found in /run/containers/UID,
    where podman keeps it then (containers-auth.json(5)). It is also found in ~/.config, where
    `podman login` keeps it on macOS and for the time after a reboot.
    """
    host = "registry.example.org:5000"
    write(tmp_path / ".docker" / "config.json", {"auths": {host: auth("docker", "1")}})
    write(tmp_path / ".config" / "containers" / "auth.json", {"auths": {host: auth("stays", "2")}})
    assert find_login(REPOSITORY, {}, tmp_path) == Login("stays", "2")
    own = tmp_path / "own"
    write(own / "containers" / "auth.json", {"auths": {host: auth("moved", "3")}})
    assert find_login(REPOSITORY, {"XDG_CONFIG_HOME": str(own)}, tmp_path) == Login("moved", "3")
    write(podman_folder / str(os.getuid()) / "auth.json", {"auths": {host: auth("root", "4")}})
    assert find_login(REPOSITORY, {}, tmp_path) == Login("root", "4")
    elsewhere = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert find_login(REPOSITORY, elsewhere, tmp_path) == Login("stays", "2")


def test_docker_hub_has_the_name_that_docker_gives_it(tmp_path: Path) -> None:
    """The login of Docker Hub is under docker's own key for it, both where it is read and in the
    pull Secret.
    """
    key = "https://index.docker.io/v1/"
    write(tmp_path / ".docker" / "config.json", {"auths": {key: auth("me", "hub")}})
    assert find_login("docker.io/me/trainer", {}, tmp_path) == Login("me", "hub")
    assert list(json.loads(pull_config("docker.io/me/trainer", Login("me", "x")))["auths"]) == [key]


def test_identity_token_in_dockers_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """An identity token in docker's file, as `az acr login` leaves it, is refused with the settings
    to use instead. Taken for a login with an empty password, it would end in the advice to log in,
    which the user has done.
    """
    entry = {**auth("00000000-0000-0000-0000-000000000000", ""), "identitytoken": "eyJsekret"}
    write(tmp_path / ".docker" / "config.json", {"auths": {"registry.example.org:5000": entry}})
    with pytest.raises(ValueError, match=r"identity token.*set imageDeliveryOptions\.user") as no:
        find_login(REPOSITORY, {}, tmp_path)
    assert "sekret" not in str(no.value)


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a credential helper on PATH, which docker's file names. The test writes
    it.
    """
    write(
        tmp_path / ".docker" / "config.json",
        {"credHelpers": {"registry.example.org:5000": "tests"}, "auths": {}},
    )
    program = tmp_path / "bin" / "docker-credential-tests"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def answers(program: Path, script: str) -> None:
    """Write the helper with this shell text."""
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_helper_is_asked_for_the_host(helper: Path, tmp_path: Path) -> None:
    """The credential helper is asked for the login of the registry's host."""
    answers(helper, 'read host; echo "{\\"Username\\": \\"$1 $host\\", \\"Secret\\": \\"s\\"}"')
    assert find_login(REPOSITORY, {}, tmp_path) == Login("get registry.example.org:5000", "s")


def test_helper_without_a_login_is_no_error(helper: Path, tmp_path: Path) -> None:
    """A helper that has no login for the host is no error; there is no login then."""
    answers(helper, "echo credentials not found in native keychain; exit 1")
    assert find_login(REPOSITORY, {}, tmp_path) is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no session; exit 1", "docker-credential-tests, named in .*config.json: no session"),
        ("echo nonsense", "did not answer with a login"),
        (
            """echo '{"Username": "<token>", "Secret": "s"}'""",
            r"identity token, .* set imageDeliveryOptions\.user",
        ),
    ],
)
def test_helper_that_cannot_be_used_is_named(
    helper: Path, tmp_path: Path, script: str, words: str
) -> None:
    """A helper that fails, or whose answer cannot be used, is named in the error with its
    reason.
    """
    answers(helper, script)
    with pytest.raises(ValueError, match=words):
        find_login(REPOSITORY, {}, tmp_path)


@pytest.mark.usefixtures("helper")
def test_helper_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names docker-credential-tests, which is not on this"):
        find_login(REPOSITORY, {}, tmp_path)


def test_helper_that_cannot_be_started_is_named(helper: Path, tmp_path: Path) -> None:
    """A helper that the machine cannot start is named in the error with a way out. Docker Desktop
    leaves such a one, a program of Windows, in the Linux beside it. A `preview` takes the error for
    a registry that cannot be asked yet, and must not end with a traceback.
    """
    helper.write_bytes(b"MZ\x90\x00")
    helper.chmod(0o755)
    words = r"config\.json: it names docker-credential-tests, .*Exec format error.*set imageDel"
    with pytest.raises(ValueError, match=words):
        find_login(REPOSITORY, {}, tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"auths": {"registry.example.org:5000": {"auth": "?"}}}']
)
def test_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / ".docker" / "config.json"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ValueError, match=str(file)):
        find_login(REPOSITORY, {}, tmp_path)


def test_pull_secret_holds_what_the_kubelet_reads() -> None:
    """The pull Secret has the login in the form that the kubelet reads, and a login shows no
    password when it is printed.
    """
    content = json.loads(pull_config(REPOSITORY, Login("u", "p:q")))
    entry = content["auths"]["registry.example.org:5000"]["auth"]
    assert b64decode(entry).decode() == "u:p:q"
    assert "p:q" not in repr(Login("u", "p:q"))


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://registry.example.org/v2/", "http://proxy:3128"),
        ("https://a.inside.example/v2/", ""),
        ("https://10.1.2.3:5000/v2/", ""),
        ("https://11.1.2.3:5000/v2/", "http://proxy:3128"),
        ("http://registry.example.org/v2/", ""),  # no http_proxy is set
    ],
)
def test_proxy_by_the_rules_of_no_proxy(url: str, proxy: str) -> None:
    """The registry is reached through the proxy unless no_proxy names its host, domain or
    network.
    """
    environment = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "inside.example, 10.0.0.0/8"}
    assert proxy_of(url, environment) == proxy


@pytest.mark.parametrize(
    ("url", "exception", "is_direct"),
    [
        ("https://registry.corp:5000/v2/", "registry.corp:5000", True),
        ("https://registry.corp:5001/v2/", "registry.corp:5000", False),
        ("https://registry.corp/v2/", "registry.corp:443", True),
        ("http://registry.corp/v2/", "registry.corp:443", False),
        ("https://a.corp:5000/v2/", ".corp:5000", True),
        ("https://10.1.2.3:5000/v2/", "10.1.2.3:5000", True),
        ("https://[fd00::4]:5000/v2/", "[fd00::4]:5000", True),
        ("https://[fd00::4]:5000/v2/", "[fd00::4]", True),
        ("https://[fd00::4]:5000/v2/", "fd00::4", True),
        ("https://a.corp/v2/", "*.corp", True),
        ("https://a.corp/v2/", "A.Corp", True),
        ("https://a.corp/v2/", "a.corp.", True),
        ("https://acorp/v2/", "*.corp", False),
        ("https://user:se/cret@a.corp/", "a.corp:443", False),
    ],
)
def test_exceptions_are_understood_as_by_the_nodes(
    url: str, exception: str, is_direct: bool
) -> None:
    """An entry of `noProxy` with a port, `*.` or capitals counts for a push as it does for the
    nodes, which pull by Go's rules. Otherwise the push goes to a proxy that does not reach the
    registry, and the error tells the user to add it to `noProxy`, where it is.
    """
    proxies = {"https_proxy": "http://proxy:3128", "http_proxy": "http://proxy:3128"}
    found = proxy_of(url, {**proxies, "no_proxy": f"other.corp, {exception}"})
    assert found == ("" if is_direct else "http://proxy:3128")


@pytest.mark.parametrize("proxy", ["proxy:3128", "me:sekret@proxy:3128"])
def test_proxy_without_a_scheme_speaks_plain_http(proxy: str) -> None:
    """A proxy in the user's shell may have no scheme, as for curl and docker."""
    assert proxy_of("https://registry.corp/v2/", {"HTTPS_PROXY": proxy}) == f"http://{proxy}"
