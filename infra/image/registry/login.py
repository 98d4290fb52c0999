"""Finds the login for a registry that `docker login` or `podman login` has kept.

Formats: https://github.com/containers/image/blob/v5.36.0/docs/containers-auth.json.5.md (podman)
and https://docs.docker.com/reference/cli/docker/login/#configure-the-credential-store (docker).
"""

import json
import os
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

PASSWORD_VARIABLE = "IMAGE_REGISTRY_PASSWORD"
DOCKER_HUB = "docker.io"
DOCKER_HUB_KEY = "https://index.docker.io/v1/"  # its key in docker's file and in pull secrets
HELPER_SECONDS = 30
PODMAN_FOLDER = Path("/run/containers")  # of podman, for users without XDG_RUNTIME_DIR
_IDENTITY_TOKEN = (
    "an identity token, which is not supported; set imageDeliveryOptions.user and "
    "imageDeliveryOptions.password"
)


@dataclass(frozen=True)
class Login:
    """A user of a registry, and the password."""

    user: str
    password: str = field(repr=False)

    @property
    def encoded(self) -> str:
        """`user:password` in base64, the form in the files of docker and podman."""
        return b64encode(f"{self.user}:{self.password}".encode()).decode()


def host_of(repository: str) -> str:
    """Return the host of a repository: `registry.example.org` of `registry.example.org/trainer`."""
    return repository.partition("/")[0]


def pull_config(repository: str, login: Login) -> str:
    """Return the content of a Secret of type `kubernetes.io/dockerconfigjson` with this login."""
    return json.dumps({"auths": {_docker_key(host_of(repository)): {"auth": login.encoded}}})


def find_login(repository: str, environment: Mapping[str, str], home: Path) -> Login | None:
    """Return the login that docker or podman has kept for a repository; None if there is none.

    Args:
        repository: name without tag.
        environment: the variables of this process, which say where the files are.
        home: home folder of the user.

    Raises:
        ValueError: a file cannot be read, or the credential helper that it names does not work.
    """
    for file in _files(environment, home):
        try:
            text = file.read_text()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ValueError(f"{file}: it cannot be read ({error.strerror})") from None
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ValueError(f"{file}: it holds no JSON object, so no login can be read from it")
        if login := _login_in(cast(dict[str, Any], content), repository, file):
            return login
    return None


def _files(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return the files that may hold a login, in the order in which podman reads them."""
    given = environment.get("REGISTRY_AUTH_FILE")
    runtime = environment.get("XDG_RUNTIME_DIR")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    docker = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    podman = Path(runtime) / "containers" if runtime else PODMAN_FOLDER / str(os.getuid())
    files = [Path(given)] if given else []
    # A user who has never used podman may be kept out of root's PODMAN_FOLDER.
    files += [podman / "auth.json"] if runtime or os.access(podman, os.X_OK) else []
    return [*files, config / "containers" / "auth.json", docker / "config.json"]


def _login_in(content: Mapping[str, Any], repository: str, file: Path) -> Login | None:
    host = host_of(repository)
    helpers = cast(dict[str, str], content.get("credHelpers") or {})
    helper = helpers.get(host) or cast(str, content.get("credsStore") or "")
    if helper:
        return _ask_helper(helper, _docker_key(host), file)
    auths = cast(dict[str, dict[str, str]], content.get("auths") or {})
    for key in _keys(repository):
        entry = auths.get(key) or {}
        if entry.get("identitytoken"):  # With an identity token, `auth` holds no password.
            raise ValueError(f"{file}: the entry {key!r} is {_IDENTITY_TOKEN}")
        if entry.get("auth"):
            try:
                user, colon, password = b64decode(entry["auth"]).decode().partition(":")
            except ValueError:
                colon = user = password = ""
            if not colon:
                raise ValueError(f"{file}: the entry {key!r} is no user and password in base64")
            return Login(user, password)
    return None


def _keys(repository: str) -> list[str]:
    """Return the keys that may stand for this repository, the most specific first.

    podman also keeps logins for paths, and not only for hosts.
    """
    parts = repository.split("/")
    paths = ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
    host = parts[0]
    return [*paths, _docker_key(host), f"https://{host}", f"http://{host}"]


def _docker_key(host: str) -> str:
    return DOCKER_HUB_KEY if host == DOCKER_HUB else host


def _ask_helper(helper: str, key: str, file: Path) -> Login | None:
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=key,
            capture_output=True,
            text=True,
            timeout=HELPER_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise ValueError(f"{file}: it names {program}, which is not on this machine") from None
    except OSError as error:
        raise ValueError(
            f"{file}: it names {program}, which this machine cannot start ({error.strerror}). Take "
            "it out of that file (credsStore, credHelpers) and log in again, or set "
            "imageDeliveryOptions.user and imageDeliveryOptions.password"
        ) from None
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{program}, named in {file}, gave no answer in {HELPER_SECONDS} s"
        ) from None
    if done.returncode:
        if "credentials not found" in done.stdout:  # A helper prints this if it has no login.
            return None
        raise ValueError(
            f"{program}, named in {file}: {(done.stdout or done.stderr).strip()[-300:]}"
        )
    try:
        answer = json.loads(done.stdout)
        user, password = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{program}, named in {file}, did not answer with a login") from None
    if user == "<token>":
        raise ValueError(f"{program}, named in {file}, gives {_IDENTITY_TOKEN}")
    return Login(user, password)
