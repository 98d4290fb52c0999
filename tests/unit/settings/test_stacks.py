"""The stack files of the project, and how a stack file is read without Pulumi."""

import json
import re
from pathlib import Path

import pulumi
import pytest
import yaml

from cli.stack_plan import plan_of_stack
from infra.airgap.stack_file import settings_of
from infra.kinds import KINDS
from infra.settings import Devices, PlatformForRuns, parse_settings
from infra.settings.project import declared_defaults, own_values, raw_settings
from tests.unit import stacks
from tests.unit.stacks import PROJECT, STACKS, files_of_this_machine

ENCRYPTED = {"secure": "v1:abcdefgh:ciphertext"}


def stack_file(folder: Path, config: dict[str, object]) -> Path:
    """Write the file of a stack with this configuration; return its path."""
    file = folder / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump({"config": config}))
    return file


@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_of_the_project_is_accepted(stack: str, tmp_path: Path) -> None:
    raw = stacks.raw_settings(stack, files_of_this_machine(stack, tmp_path))
    on_gpu = "sandbox" not in stack
    devices = Devices("gpu", 3) if on_gpu else Devices("cpu", 0)
    platform = PlatformForRuns(devices) if raw["platform"] else None
    settings = parse_settings(raw, (), stack, KINDS, platform)
    assert settings.run
    config = settings.run.config
    assert settings.stack == config.run_name == stack
    expected = ("cuda", "nccl") if on_gpu else ("cpu", "gloo")
    assert (config.train.device, config.train.backend) == expected


@pytest.mark.parametrize("stack", STACKS)
def test_stack_files_hold_only_what_differs(stack: str) -> None:
    """The stack files of the project contain only values that differ from the defaults."""
    defaults = declared_defaults()
    values = stacks.raw_settings(stack).items()
    differing = {key for key, value in values if value != defaults[key]}
    text = (PROJECT / f"Pulumi.{stack}.yaml").read_text()
    assert set(re.findall(r"^  disttrain:(\w+):", text, re.MULTILINE)) == differing


def test_keys_of_other_namespaces_are_left_out(tmp_path: Path) -> None:
    """Keys of others in a stack's file, such as `kubernetes:namespace`, are ignored where the file
    is read without Pulumi. Otherwise `make bundle` would refuse stacks that `up` accepts.
    """
    config = {
        "disttrain:gpusPerPod": 3,
        "kubernetes:namespace": "other",
        "pulumi:disable-default-providers": ["*"],
    }
    file = stack_file(tmp_path, config)
    raw, encrypted = raw_settings(file)
    assert set(raw) == set(declared_defaults())
    assert encrypted == set()
    assert settings_of(file, {}).stack == "mine"


def test_doctor_takes_keys_of_other_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./disttrain doctor --stack` also ignores keys of others in a stack's file."""
    file = stack_file(tmp_path, {"disttrain:gpusPerPod": 3, "kubernetes:namespace": "other"})
    monkeypatch.setattr("cli.stack_plan.stack_file", lambda stack: file)
    assert plan_of_stack("mine").expect.ranks == 3


def test_encrypted_values_are_told_from_plain_ones(tmp_path: Path) -> None:
    """Encrypted values of a stack's file are known as such, also inside an object, and count as
    empty.
    """
    registries = {"configs": {"registry": {"auth": {"password": ENCRYPTED}}}}
    config = {"disttrain:sudoPassword": ENCRYPTED, "disttrain:k3sRegistries": registries}
    raw, encrypted = raw_settings(stack_file(tmp_path, config))
    assert encrypted == {"sudoPassword", "k3sRegistries"}
    assert (raw["sudoPassword"], raw["k3sRegistries"]) == ("", "{}")


def test_a_missing_stack_file_names_the_others(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*nothing\.yaml.*Pulumi\.dev\.yaml"):
        raw_settings(tmp_path / "Pulumi.nothing.yaml")
    with pytest.raises(ValueError, match=r"--stack: there is no .*Pulumi\.nothing\.yaml"):
        plan_of_stack("nothing")


@pytest.mark.parametrize(
    "written", ["distrain:gpus", "disttrian:gpus", "DistTrain:gpus", "dist-train:gpus"]
)
def test_a_misspelt_prefix_is_refused(written: str, tmp_path: Path) -> None:
    """A key whose prefix is nearly the project's is refused. Otherwise the setting would have its
    default, and nobody would be told.
    """
    for raw in (own_values({written: "4"}), raw_settings(stack_file(tmp_path, {written: 4}))[0]):
        with pytest.raises(pulumi.RunError) as failure:
            parse_settings({**declared_defaults(), **raw}, (), "mine", KINDS)
        (line,) = [line for line in str(failure.value).splitlines() if line.startswith("  - ")]
        assert line == (
            f"  - {written}: '4' cannot be used: the settings of this project begin with "
            f"disttrain: (did you mean disttrain:gpus?). Set it by that name, and remove this one: "
            f"`pulumi config rm {written}`."
        )


def test_settings_of_the_former_project_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a user gives the project another name in Pulumi.yaml, settings that still have the former
    one are refused. Otherwise each of them would have its default, and nobody would be told.
    """
    for module in ("project", "reader"):
        monkeypatch.setattr(f"infra.settings.{module}.project_name", lambda: "acme-llm")
    file = stack_file(tmp_path, {"disttrain:gpus": 4, "acme-llm:gpusPerPod": 2})
    for raw in (
        raw_settings(file)[0],
        own_values({"disttrain:gpus": "4", "acme-llm:gpusPerPod": "2"}, "acme-llm"),
    ):
        assert raw["gpusPerPod"] == "2"
        with pytest.raises(pulumi.RunError) as failure:
            parse_settings({**declared_defaults(), **raw}, (), "mine", KINDS)
        assert (
            "disttrain:gpus: '4' cannot be used: the settings of this project begin with acme-llm: "
            "(did you mean acme-llm:gpus?). Set it by that name, and remove this one"
        ) in str(failure.value)


def test_a_secret_with_a_misspelt_prefix_is_not_shown() -> None:
    """The value of a setting that may hold a secret is not shown under a misspelt prefix either."""
    raw = {**declared_defaults(), **own_values({"distrain:sudoPassword": "hidden"})}
    with pytest.raises(pulumi.RunError, match=r"distrain:sudoPassword: \[secret\] cannot be used"):
        parse_settings(raw, (), "mine", KINDS)


@pytest.mark.parametrize("name", ["my.stack", "Mine", "a.b.c"])
def test_a_stack_with_dots_keeps_its_name(name: str, tmp_path: Path) -> None:
    """The name of a stack may have dots. Without Pulumi it is read from the name of the file."""
    file = stack_file(tmp_path, {"disttrain:gpusPerPod": 3}).rename(
        tmp_path / f"Pulumi.{name}.yaml"
    )
    settings = settings_of(file, {})
    assert settings.run
    assert settings.stack == settings.run.config.run_name == name


@pytest.mark.parametrize("stack", ["mine", "organization/disttrain/mine", "me/disttrain/mine"])
def test_doctor_takes_the_whole_name_of_a_stack(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./disttrain doctor --stack` takes a stack's whole name, as `pulumi --stack` does. Its file
    has the last part of it, and its secrets are asked for by the whole one.
    """
    config = {"disttrain:gpusPerPod": 3, "disttrain:sudoPassword": ENCRYPTED}
    stack_file(tmp_path, config)
    asked: list[str] = []

    def shown(name: str) -> tuple[dict[str, str], set[str]]:
        asked.append(name)
        return {"sudoPassword": "hidden"}, {"sudoPassword"}

    monkeypatch.setattr("cli.stack_plan.stack_file", lambda name: tmp_path / f"Pulumi.{name}.yaml")
    monkeypatch.setattr("cli.stack_plan.shown_settings", shown)
    assert plan_of_stack(stack).expect.ranks == 3
    assert asked == [stack]


ENVIRONMENT = "environment: [machines]\nconfig: {disttrain:gpusPerPod: 2}\n"
OF_ENVIRONMENT = {
    "disttrain:gpusPerPod": {"value": "3", "secret": False},
    "disttrain:sudoPassword": {"value": "hidden", "secret": True},
}


@pytest.mark.parametrize("name", ["mine", "organization/disttrain/mine"])
def test_doctor_takes_settings_of_environments(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a stack's file names environments of Pulumi ESC, `doctor` asks pulumi for the settings, as
    `up` has them. Secrets of an environment count as encrypted.
    """
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text(ENVIRONMENT)
    monkeypatch.setattr("cli.stack_plan.stack_file", lambda stack: file)
    monkeypatch.setattr("cli.stack_plan.ask_pulumi", lambda words: json.dumps(OF_ENVIRONMENT))
    plan = plan_of_stack(name)
    assert plan.expect.ranks == 3
    assert plan.sudo_password == "hidden"


def test_run_on_another_platform_is_read_with_its_queue(tmp_path: Path) -> None:
    """`make bundle` refuses a placement that does not fit the queue of the run's platform, as `up`
    would on the machines without a network, where it costs most.
    """
    levels = ["example.com/rack", "kubernetes.io/hostname"]
    platform: dict[str, object] = {"disttrain:queues": {"name": "gpus", "topology": levels}}
    stack_file(tmp_path, platform).rename(tmp_path / "Pulumi.base.yaml")
    run: dict[str, object] = {
        "disttrain:platform": "base",
        "disttrain:topology": "indexed-job",
        "disttrain:queue": "gpus",
        "disttrain:placement": "packed",
        "disttrain:placementLabel": "example.com/row",
    }
    with pytest.raises(
        ValueError, match=r"placementLabel: 'example.com/row' cannot be used: it is "
    ):
        settings_of(stack_file(tmp_path, run), {})
    file = stack_file(tmp_path, {**run, "disttrain:placementLabel": "example.com/rack"})
    settings = settings_of(file, {})
    assert settings.run
    assert settings.run.queue_levels == tuple(levels)
