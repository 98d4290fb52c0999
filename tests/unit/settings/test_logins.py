"""No message about a setting shows a user and password that stand in its value.

People paste addresses with a login into all kinds of settings, and the messages of `pulumi preview`
go into the logs of a continuous integration.
"""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from infra.kinds import KINDS
from infra.settings import PlatformForRuns, parse_settings
from infra.settings.devices import Devices
from infra.settings.nodes import NodeSettings
from infra.settings.project import as_text
from tests.unit.stacks import PROJECT_FILE, raw_settings
from trainer.config import RunConfig
from trainer.config.problem import logins, without_logins

MARK = "hunter2"
TEXTS = {
    "an address": f"https://me:{MARK}@host.example:99999/a b",
    "a right address": f"https://me:{MARK}@host.example/a",
    "a token": f"s3://{MARK}@host.example:port",
    "no scheme": f"me:{MARK}@host.example",
    "a command": f"curl --proxy me:{MARK}@host.example 'https://me:{MARK}@host.example",
    "a slash": f"https://me:a/{MARK}@host.example",
    "a number and a slash": f"https://me:1/{MARK}@host.example",
    "a blank": f"https://me:a {MARK}@host.example",
    "quotes": f"https://me:'\"{MARK}@host.example",
    "an at": f"https://me:{MARK}@{MARK}@host.example",
    "two lines": f"me:{MARK}@host.example\nhttps://me:{MARK}@host.example",
    "an image": f"me:{MARK}@host.example/a:b@sha256:{'0' * 64}",
}
KEYS: dict[str, Any] = PROJECT_FILE["config"]


def fields_of(cls: type[Any], value: str) -> dict[str, Any]:
    """Return this value for each field of a dataclass, and of the dataclasses in it."""
    hints = typing.get_type_hints(cls)
    return {
        field.name: fields_of(hints[field.name], value)
        if dataclasses.is_dataclass(hints[field.name])
        else value
        for field in dataclasses.fields(cls)
    }


def options_of(kinds: Any, value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name of each kind, and its options with this value."""
    for name, kind in kinds.items():
        yield name, {field.name: value for field in dataclasses.fields(kind.options)}


def with_kinds(value: str) -> Iterator[dict[str, Any]]:
    """Yield settings of each kind whose options have this value."""
    found = (
        ("topology", "topologyOptions", KINDS.workloads),
        ("storage", "storageOptions", KINDS.storages),
        ("network", "networkOptions", KINDS.networks),
        ("imageDelivery", "imageDeliveryOptions", KINDS.deliveries),
    )
    for key, options_key, kinds in found:
        for name, options in options_of(kinds, value):
            yield {key: name, options_key: options}
            for option, text in options.items():
                yield {key: name, options_key: {option: text}}


def known_parts(value: str) -> Iterator[dict[str, Any]]:
    """Yield settings that are objects or lists, with this value at the places that are known."""
    run = fields_of(RunConfig, value)
    yield {"run": run}
    for section, content in run.items():
        yield {"run": {section: content}}
        for key in content if isinstance(content, dict) else ():
            yield {"run": {section: {key: value}}}
    for key in run["program"]:
        for shape in (value, [value], {value: value}):
            yield {"program": {"command": ["true"], key: shape}}
    for key in run["dataset"]:
        yield {"datasetOptions": {key: value}}
    for file in ({"url": value}, {"url": "https://a/b", "sha256": value}):
        yield {"datasetFiles": [file]}
    node = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA"}
    for field in dataclasses.fields(NodeSettings):
        for shape in (value, [value], {value: value}):
            yield {"nodes": [{**node, field.name: shape}]}
    for queue in ({"name": value}, {"quota": {"cpu": value}}, {"priorities": {value: value}}):
        yield {"queues": {"name": "gpus", **queue}}
    for key in ("topology", "quota", "priorities", "cohort"):
        for shape in (value, [value], {value: value}):
            yield {"queues": {"name": "gpus", key: shape}}
    for name in KINDS.controllers:
        yield {"controllers": [name], "controllerCharts": {name: value}}
        yield {"controllers": [name], "controllerManifests": {name: value}}
    toleration = {"key": "team", "operator": "Equal", "value": "ml"}
    for key in toleration:
        yield {"tolerations": [{**toleration, key: value}]}
    for key in ("podEnvironment", "podSecrets", "podLabels", "podAnnotations", "nodeSelector"):
        yield {key: {"A": value}}
        yield {key: {value: "a"}}


def each_setting(value: str) -> Iterator[dict[str, Any]]:
    """Yield each setting with this value, in all shapes that a user could give it."""
    for key in KEYS:
        for shape in (value, [value], {"a": value}, {value: value}, {"a": {"b": [value]}}):
            yield {key: shape}
    yield {"kubectll": value}
    yield {value: value}


stack_settings = functools.cache(raw_settings)


def refusal(changes: dict[str, Any], stack: str) -> str:
    """Return the message with which these settings are refused; empty if they are accepted."""
    platform = PlatformForRuns(Devices("gpu", 3, machines=2)) if stack == "multipod" else None
    given = {**stack_settings(stack), **{key: as_text(value) for key, value in changes.items()}}
    try:
        parse_settings(given, (), stack, KINDS, platform)
    except pulumi.RunError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("what", "stack"),
    [("a blank", "dev"), ("quotes", "dev"), ("no scheme", "multipod")],
)
def test_login_in_a_wrong_setting_is_not_shown(
    what: str, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting is given a login, alone and in each place of an object or list. Whatever is
    wrong with it is said without the login.
    """
    # The files of the trainer are the same each time, and no message is about them.
    monkeypatch.setattr("infra.image.plan.code_files", lambda _: [])
    monkeypatch.setattr("infra.image.plan.code_layer", lambda _: b"")
    value, shown, refused = TEXTS[what], list[str](), set[str]()
    for changes in (*each_setting(value), *known_parts(value), *with_kinds(value)):
        said = refusal(changes, stack)
        refused |= changes.keys() if said else set()
        shown += [line for line in said.splitlines() if MARK in line]
    assert shown == []
    # These take nearly any text: one that is meant for another stack, and names of other programs.
    assert KEYS.keys() - refused <= {"platform", "kubectl", "gpuModel", "purgeConfirmed", "ctr"}


@pytest.mark.parametrize("what", TEXTS)
def test_message_shows_the_host_and_not_the_login(what: str) -> None:
    """A message about an address shows its host, by which people know which one is meant. What
    messages must not show is known, too, alone or in a word of the text.
    """
    text = TEXTS[what]
    shown = without_logins({"a": [text, 1], text: True})
    assert MARK not in str(shown)
    assert "[secret]@host.example" in str(without_logins(text))
    for part in (text, *text.split()):
        for login in sorted(logins(text), key=len, reverse=True):
            part = part.replace(f"{login}@", "@")
        assert MARK not in part


@pytest.mark.parametrize(
    "text",
    [
        "https://host.example:8080/a?b=c",
        f"registry.example:5000/team/trainer:v1@sha256:{'0' * 64}",
        f"oci://registry.example/charts/a@sha256:{'0' * 64}",
        "git@github.com:team/a",
        "a: b",
        "@",
        "",
    ],
)
def test_text_without_login_is_shown_whole(text: str) -> None:
    """The digest of an image is no host, and a user without a password is no secret."""
    assert without_logins(text) == text
    assert logins([text]) == set()
