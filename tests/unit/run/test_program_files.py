"""A program of the user in the pods: its files, its image and its settings."""

import base64
import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.image.registry.login import PASSWORD_VARIABLE
from infra.kinds import KINDS
from infra.settings import Devices, PlatformForRuns, parse_settings
from infra.settings.program_image import PlatformDelivery
from infra.workloads.pod import environment
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import before
from tests.unit.pods import broken_rules
from tests.unit.stacks import (
    Deployment,
    RecordingMonitor,
    deploy,
    plain,
    raw_settings,
    run_with,
    without_secrets,
)

COMMAND = ["python", "train.py"]
COUNT = itertools.count()


def deployed(tmp_path: Path, files: dict[str, bytes], **more: Any) -> Deployment:
    """Return a deployment of a program with these files, by their paths in its folder."""
    scratch = tmp_path / str(next(COUNT))
    folder = scratch / "mine"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    scratch.mkdir(exist_ok=True)
    program = {"command": COMMAND, **more, **({"files": str(folder)} if files else {})}
    return deploy("multipod", scratch, {"program": program})


def pod_of(made: Deployment) -> dict[str, Any]:
    return made.one("training-stateful-set").inputs["spec"]["template"]["spec"]


def test_files_come_to_the_pods_at_their_paths(tmp_path: Path) -> None:
    made = deployed(tmp_path, {"train.py": b"print(1)", "parts/table.bin": b"\xff\x00"})
    found = plain(made.one("program-files-config-map").inputs)
    assert found["immutable"] is True
    (volume,) = [each for each in pod_of(made)["volumes"] if each["name"] == "program"]
    assert volume["configMap"]["name"] == found["metadata"]["name"]
    texts, others = found["data"], found["binaryData"]
    contents = {
        item["path"]: texts[item["key"]].encode()
        if item["key"] in texts
        else base64.b64decode(others[item["key"]])
        for item in volume["configMap"]["items"]
    }
    assert contents == {"train.py": b"print(1)", "parts/table.bin": b"\xff\x00"}
    (container,) = pod_of(made)["containers"]
    mount = {"name": "program", "mountPath": "/program", "readOnly": True}
    assert mount in container["volumeMounts"]


def test_changed_file_is_another_object_and_another_revision(tmp_path: Path) -> None:
    """A changed file makes another ConfigMap and other pods. So the pods are made again, and none
    of them sees half of a change.
    """
    one, other = (deployed(tmp_path, {"train.py": text}) for text in (b"1", b"2"))
    names = {
        each.one("program-files-config-map").inputs["metadata"]["name"] for each in (one, other)
    }
    assert len(names) == 2
    assert pod_of(one) != pod_of(other)


def test_program_has_no_data_set_and_no_sample_command(tmp_path: Path) -> None:
    """A run of a program prepares no data set and has no command for samples."""
    made = deployed(tmp_path, {})
    names = [resource.name for resource in made.resources]
    assert not [name for name in names if name.startswith(("dataset", "program-files"))]
    assert made.outputs["program"] == "python train.py"
    assert (made.outputs["sampleCommand"], made.outputs["maxSteps"]) == ("", 0)


def test_up_says_what_a_ready_program_means(tmp_path: Path) -> None:
    """`up` says whether a ready program has printed a step, or that its steps are not seen."""
    seen = deployed(tmp_path, {}, progress=r"step (?P<step>\d+)").one("training-await").program
    assert "rank 0 of the program has printed a step" in seen
    unseen = deployed(tmp_path, {}).one("training-await").program
    assert "its steps are not seen, as neither program.progress nor program.progress_file" in unseen


def test_image_of_ones_own_gets_the_launcher_from_the_trainer_image(tmp_path: Path) -> None:
    """A pod with the user's image copies the launcher from the trainer's image, and is otherwise
    the same. The container that copies obeys all rules for pods.
    """
    usual, own = deployed(tmp_path, {}), deployed(tmp_path, {}, image="registry.example/mine:1")
    (before,), (after,) = pod_of(usual)["containers"], pod_of(own)["containers"]
    (launcher,) = pod_of(own)["initContainers"]
    assert (launcher["image"], launcher["args"]) == (before["image"], ["carry", "/disttrain"])
    mount = {"name": "launcher", "mountPath": "/disttrain"}
    assert launcher["volumeMounts"] == [mount]
    assert after["volumeMounts"] == [*before["volumeMounts"], {**mount, "readOnly": True}]
    more = {"PYTHONUNBUFFERED": "1", "LOGNAME": "trainer"}
    assert after["env"] == [*environment(more), *before["env"]]
    assert after["image"] == "registry.example/mine:1"
    assert after["imagePullPolicy"] == "IfNotPresent"
    assert after["command"] == ["python3", "/disttrain/start.py"]
    assert after["args"] == before["args"]
    same = ("resources", "securityContext", "readinessProbe", "name", "envFrom")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    template = own.one("training-stateful-set").inputs["spec"]["template"]
    assert broken_rules(template) == []


@pytest.mark.parametrize("name", ["LOGNAME", "USER"])
def test_users_own_name_of_the_user_stays(tmp_path: Path, name: str) -> None:
    """A user name from `podEnvironment` is not overridden. Python's getpass reads LOGNAME before
    USER, so LOGNAME must not be set beside USER.
    """
    program = {"command": COMMAND, "image": "registry.example/mine:1"}
    changes = {"program": program, "podEnvironment": {name: "ada"}}
    (container,) = pod_of(deploy("multipod", tmp_path, changes))["containers"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    assert {key: found[key] for key in ("LOGNAME", "USER") if key in found} == {name: "ada"}


def test_image_of_ones_own_trusts_the_same_authorities(tmp_path: Path) -> None:
    """A pod with the user's image trusts the authorities of `caBundle` and those of its own image.
    The container that collects them uses the user's image, because the trainer's image may have
    others.
    """
    authority = tmp_path / "ca.crt"
    authority.write_text(AUTHORITY)
    program = {"command": COMMAND, "image": "registry.example/mine:1"}
    settings = {"topology": "multi-pod", "pods": "3", "gpusPerPod": "1"}
    given = {**settings, "program": program, "caBundle": str(authority)}
    pod = pod_of(deploy("dev", tmp_path, given))
    assert [each["name"] for each in pod["initContainers"]] == ["trust", "launcher"]
    (container,) = pod["containers"]
    assert "SSL_CERT_FILE" in {each["name"] for each in container["env"]}
    collects = pod["initContainers"][0]
    for key in ("image", "imagePullPolicy"):
        assert collects[key] == container[key]


def test_image_that_is_built_is_there_before_the_pods(tmp_path: Path) -> None:
    """An image that is built has a command of its own, which runs before the pods are made. The
    pods use both images.
    """
    (tmp_path / "Dockerfile").write_text("FROM mine:1")
    program = {"command": COMMAND, "build": str(tmp_path)}
    settings = {"topology": "multi-pod", "pods": "3", "gpusPerPod": "1"}
    made = deploy("dev", tmp_path, {**settings, "program": program})
    command, trainers = made.one("program-image-ensure"), made.one("image-ensure")
    words = shlex.split(command.inputs["create"])
    assert words[words.index("--program") + 1] == str(tmp_path)
    assert "--base-image" not in words
    assert "--program" not in trainers.inputs["create"]
    (container,) = pod_of(made)["containers"]
    (launcher,) = pod_of(made)["initContainers"]
    repository, _, tag = container["image"].rpartition(":")
    assert repository == f"{launcher['image'].rpartition(':')[0]}-program"
    assert f"{repository}:{tag}" in command.inputs["delete"]
    assert "program-image-ensure" in before(made, "training-stateful-set")


def test_run_on_anothers_nodes_builds_no_image(tmp_path: Path) -> None:
    """A run on the platform of another stack that imports images into nodes cannot build one. It
    has only a kubeconfig, so it cannot bring an image to a node.
    """
    (tmp_path / "Dockerfile").write_text("FROM mine:1")
    with pytest.raises(pulumi.RunError) as refused:
        deployed(tmp_path, {}, build=str(tmp_path))
    said = str(refused.value)
    assert f"program.build: '{tmp_path}' cannot be used: stack 'dev' owns the platform" in said
    assert "(imageDelivery: import), which a run cannot" in said
    assert "pulumi config set --stack dev imageDelivery registry" in said
    assert "name it in program.image" in said


def on_a_registrys_platform(
    tmp_path: Path, changes: dict[str, object], secret_keys: tuple[str, ...] = ()
) -> Deployment:
    """Return a run with an image that is built, on the platform of stack `dev`, which delivers
    images by a registry with a login.
    """
    (tmp_path / "Dockerfile").write_text("FROM mine:1")
    options = {"user": "owner", "password": "sekret-1", "plainHttp": True}
    platform: dict[str, object] = {
        "imageDelivery": "registry",
        "imageRepository": "registry.example.org/team/trainer",
        "imageDeliveryOptions": json.dumps(options),
    }
    outputs = deploy("dev", tmp_path, platform, ["imageDeliveryOptions"]).outputs
    assert "sekret-1" not in outputs["platform"]
    program = {"command": COMMAND, "build": str(tmp_path)}
    monitor = RecordingMonitor(outputs)
    run_with(
        monitor, "multipod", raw_settings("multipod", {"program": program, **changes}), secret_keys
    )
    return monitor.deployment


def test_run_brings_its_image_to_the_platforms_registry(tmp_path: Path) -> None:
    """A run pushes its image to the platform's registry before the pods are made, with the login of
    this machine. The pods pull it like the trainer's image.
    """
    made = on_a_registrys_platform(tmp_path, {"imageBuilder": "podman"})
    command = made.one("program-image-push")
    words = shlex.split(command.inputs["create"])
    repository = "registry.example.org/team/trainer-program"
    assert words[words.index("--repository") + 1] == repository
    assert words[words.index("--program") + 1] == str(tmp_path)
    assert words[words.index("--builder") + 1] == "podman"
    assert "--plain-http" in words  # like the pushes of the platform
    assert "--user" not in words
    assert words[words.index("--repository-of") + 1] == "dev"
    pod = pod_of(made)
    assert pod["containers"][0]["image"].startswith(f"{repository}:")
    assert pod["imagePullSecrets"] == [{"name": "image-registry"}]
    assert "program-image-push" in before(made, "training-stateful-set")
    assert not made.of_type("disttrain:infra:PullSecret")  # The platform has one.


def test_login_of_a_run_that_pushes_is_its_own_and_stays_secret(tmp_path: Path) -> None:
    """A run can have its own login for the registry, and its password stays secret. A user without
    a password is refused.
    """
    options = {"user": "me", "password": "sekret-2", "compression": "none"}
    given: dict[str, object] = {"imageDeliveryOptions": json.dumps(options)}
    made = on_a_registrys_platform(tmp_path, given, ("imageDeliveryOptions",))
    command = made.one("program-image-push")
    words = shlex.split(command.inputs["create"])
    assert words[words.index("--user") + 1] == "me"
    assert words[words.index("--compression") + 1] == "none"
    assert command.inputs["environment"][PASSWORD_VARIABLE] == "sekret-2"
    assert "sekret" not in json.dumps(without_secrets(command.wire))
    with pytest.raises(pulumi.RunError, match=r"imageDeliveryOptions\.password: '' cannot be used"):
        on_a_registrys_platform(tmp_path, {"imageDeliveryOptions": json.dumps({"user": "me"})})


def test_way_of_the_image_is_the_platforms_setting_alone(tmp_path: Path) -> None:
    """A run cannot set where images go, because its platform decides that. A run without an image
    of its own cannot set a login either.
    """
    for key, value in (("imageDelivery", "registry"), ("imageRepository", "other.example/x")):
        with pytest.raises(pulumi.RunError, match=f"{key}: '{value}' cannot be used: stack 'dev'"):
            on_a_registrys_platform(tmp_path, {key: value})
    with pytest.raises(pulumi.RunError, match=r"imageDeliveryOptions: \S+ cannot be used: stack"):
        on_a_registrys_platform(
            tmp_path, {"imageDeliveryOptions": '{"user":"me"}', "program": {"command": COMMAND}}
        )


def test_delivery_that_a_run_does_not_know_is_named(tmp_path: Path) -> None:
    """A run whose platform delivers images in a way that the run does not know is refused. The
    message says that each stack has to name the module that registers it.
    """
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM mine:1")
    program = {"command": COMMAND, "build": str(folder)}
    raw = raw_settings("multipod", {"program": program})
    platform = PlatformForRuns(Devices("cpu", 0), delivery=PlatformDelivery("own-way"))
    with pytest.raises(pulumi.RunError, match="by 'own-way', which this stack does not know") as no:
        parse_settings(raw, (), "multipod", KINDS, platform)
    assert "Name the module that registers it in extensions" in str(no.value)
