"""The delivery `registry`: what is refused, what its command gets, and with which login nodes
pull.
"""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from infra.deliveries import DELIVERIES
from infra.deliveries.kind import DeliveryRequest, Pull
from infra.deliveries.registry import RegistryOptions, ask_registry, check, pull, push_command
from infra.image.plan import plan_image
from infra.image.registry.login import PASSWORD_VARIABLE
from infra.registry import OptionError
from infra.settings.asked import DeliveryAsked
from infra.settings.kind_options import read_options
from infra.settings.reader import Reader
from infra.settings.secret import Secret
from tests.unit.stacks import deploy, without_secrets

PROJECT = Path(__file__).parents[3]
NAME = "registry.example.org/team/trainer"
LOGIN = RegistryOptions(user="me", password=Secret("sekret"))


def request(options: RegistryOptions | None = None, repository: str = NAME) -> DeliveryRequest:
    """Return a request with these options for an image of this repository."""
    plan = plan_image(PROJECT, repository, "base:1", None)
    return DeliveryRequest(plan=plan, options=options or RegistryOptions())


def test_what_no_registry_can_do_is_refused() -> None:
    """A repository on this machine without a registry, and a build on the node, are refused."""
    found = check(DeliveryAsked("localhost/a/b", build_on="node"))
    assert [(each.key, each.value) for each in found] == [
        ("imageRepository", "localhost/a/b"),
        ("imageBuildOn", "node"),
    ]


def test_password_without_a_user_is_refused() -> None:
    with pytest.raises(OptionError, match="user: a login is a user and a password"):
        RegistryOptions(password=Secret("x"))


@pytest.mark.parametrize("user", ["team:robot", "me\n"])
def test_user_that_no_login_can_have_is_refused(user: str) -> None:
    """A registry would take what is behind the colon for the beginning of the password."""
    with pytest.raises(OptionError, match="user: a login ends the user at the first colon"):
        RegistryOptions(user=user, password=Secret("x"))


def test_registry_on_a_port_of_this_machine_is_taken() -> None:
    """A registry on a port of this machine is accepted."""
    assert [*check(DeliveryAsked("localhost:5000/a/b"))] == []
    assert [*check(DeliveryAsked(NAME, options=LOGIN))] == []


def test_nodes_pull_with_the_login_or_a_named_secret() -> None:
    """Nodes pull without a login, with a Secret of the login in the settings, or with a Secret that
    the settings name.
    """
    assert pull(request()) == Pull()
    made = pull(request(LOGIN))
    assert made.secrets == ("image-registry",)
    assert list(json.loads(made.docker_config)["auths"]) == ["registry.example.org"]
    assert "docker_config" not in repr(made)
    named = pull(request(replace(LOGIN, pullSecret="theirs")))
    assert named == Pull(secrets=("theirs",))


def test_command_has_the_options_and_no_password() -> None:
    words = shlex.split(push_command(request(replace(LOGIN, plainHttp=True))))
    assert words[:4] == [".venv/bin/python", "-m", "infra.image", "push"]
    assert words[words.index("--user") + 1] == "me"
    assert "--plain-http" in words
    assert "sekret" not in " ".join(words) + repr(request(LOGIN))
    assert not [word for word in words if word.startswith("/")]


def test_remote_cluster_needs_no_node_for_it() -> None:
    """The delivery needs no access to a node."""
    assert not DELIVERIES["registry"].needs_node


def test_registry_without_an_answer_has_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the registry does not answer, a preview and the `up` after it have the same input."""
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path))
    dead = request(RegistryOptions(plainHttp=True), "127.0.0.1:1/a/b")
    assert ask_registry(dead, {}) == ask_registry(dead, {}) != ""


def test_password_in_plain_text_is_refused_and_not_shown() -> None:
    """A password in plain text is refused with the command to encrypt it, and is not shown; an
    encrypted one is accepted.
    """
    raw = {"imageDeliveryOptions": '{"user": "me", "password": "sekret"}'}
    reader = Reader(raw)
    read_options(reader, "imageDeliveryOptions", "imageDelivery: registry", RegistryOptions)
    (problem,) = reader.problems
    assert problem.text.startswith("imageDeliveryOptions.password: [secret] cannot be used")
    assert "--secret --path imageDeliveryOptions.password" in problem.text
    encrypted = Reader(raw, ["imageDeliveryOptions"])
    options = read_options(encrypted, "imageDeliveryOptions", "x", RegistryOptions)
    assert encrypted.problems == []
    assert options.password.text == "sekret"
    assert "sekret" not in repr(options)


def test_whole_program_hides_the_login_and_gives_it_to_the_pods(tmp_path: Path) -> None:
    """The login is a secret for the engine, reaches the push by a variable, and reaches the pods by
    a pull Secret.
    """
    changes: dict[str, object] = {
        "imageDelivery": "registry",
        "imageRepository": NAME,
        "imageDeliveryOptions": '{"user": "me", "password": "sekret"}',
    }
    made = deploy("sandbox", tmp_path, changes, ["imageDeliveryOptions"])
    secret = made.one("image-pull-secret")
    assert secret.inputs["type"] == "kubernetes.io/dockerconfigjson"
    assert "sekret" not in json.dumps(without_secrets(secret.wire))
    push = made.one("image-push")
    assert push.inputs["environment"][PASSWORD_VARIABLE] == "sekret"
    assert "sekret" not in json.dumps(without_secrets(push.wire))
    jobs = made.of_type("kubernetes:batch/v1:Job")
    assert jobs
    for job in jobs:
        pod = job.inputs["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "image-registry"}]
    assert not [r for r in made.resources if r.name == "image-ensure"]
