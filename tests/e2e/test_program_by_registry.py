"""The image that `program.build` makes, by a real registry with a login: from the stack that owns
the platform, from a run on it that has a kubeconfig and nothing else, and from a private base.

The tests build on each other in file order: one registry and one platform.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.base_image import NAME as BASE
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, training_pods
from tests.e2e.lab import Lab
from tests.e2e.trusted_registry import REPOSITORY, TrustedRegistry, trusted_registry
from tests.registry.lab import LOGIN

pytestmark = pytest.mark.in_order

PROGRAMS = f"{REPOSITORY}-program"
PRIVATE = "team/private-base"
LOGINS = "logins-of-the-guest.json"
STEPS = 40
ENDLESS = "1000000000"
POD = "train-multipod-0"
PATTERN = r"step (?P<step>\d+)/(?P<total>\d+)"


@pytest.fixture(scope="module")
def registry(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustedRegistry]:
    with trusted_registry(lab, tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def owner(registry: TrustedRegistry) -> Iterator[Stack]:
    """The stack that owns the platform, with a program of its own."""
    ours = {"preset": None, "datasetFile": None}  # the template sets these, for our trainer
    made = registry.stack("e2e-built-owner", {"topology": "multi-pod", "processesPerPod": "1"})
    made.set_all({**ours, "pods": "1"})
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def guest(registry: TrustedRegistry, owner: Stack) -> Iterator[Stack]:
    """A stack whose run stands on that platform. It has no login: not the platform's, which is a
    secret of the other stack, and none that docker or podman has kept."""
    logins = registry.lab.scratch / LOGINS
    logins.write_text(json.dumps({"auths": {}}))
    settings = {"platform": owner.name, "instance": "g", "pods": "1", "processesPerPod": "1"}
    made = registry.lab.stack("e2e-built-guest", "sandbox-multipod", settings)
    made.set_all({"preset": None, "datasetFile": None})
    made.environment["REGISTRY_AUTH_FILE"] = str(logins)
    yield made
    made.destroy()


def folder_of(folder: Path, words: str, base: str = BASE) -> Path:
    """A folder with a Dockerfile, whose program says these words."""
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY train.py words /opt/mine/\n")
    (folder / "train.py").write_text(
        "import sys, time\n"
        "print('it says', open('/opt/mine/words').read(), flush=True)\n"
        "for step in range(1, int(sys.argv[1]) + 1):\n"
        "    print(f'step {step}/{sys.argv[1]}', flush=True)\n"
        "    time.sleep(0.05)\n"
    )
    (folder / "words").write_text(words)
    return folder


def set_program(stack: Stack, run_name: str, folder: Path, steps: str = str(STEPS)) -> None:
    command = ("python3", "/opt/mine/train.py", steps)
    words = {f"program.command[{place}]": word for place, word in enumerate(command)}
    more = {"program.build": str(folder), "program.progress": PATTERN}
    stack.set_all({"runName": run_name, **words, **more})


def said(lab: Lab, run_name: str) -> str:
    """What node 0 has printed."""
    return (lab.run_dir(run_name) / "logs" / "node-00000.log").read_text()


def assert_pulled(registry: TrustedRegistry, pod: str) -> None:
    """The kubelet has it from the registry, and nothing else has brought it to the node."""
    found = registry.lab.get("pod", pod)
    assert found["spec"]["imagePullSecrets"] == [{"name": "image-registry"}]
    (status,) = found["status"]["containerStatuses"]
    repository, _, tag = status["image"].rpartition(":")
    assert repository == f"{registry.server.name}/{PROGRAMS}"
    assert tag in registry.tags(PROGRAMS)
    assert f"{repository}@sha256:" in status["imageID"]


def test_owner_builds_pushes_and_the_node_pulls(
    registry: TrustedRegistry, owner: Stack, tmp_path: Path
) -> None:
    set_program(owner, "e2e-built-owner", folder_of(tmp_path, "what the owner says"), ENDLESS)
    output = owner.up()
    assert f"{PROGRAMS}:" in output
    assert_pulled(registry, POD)
    assert "it says what the owner says" in said(registry.lab, "e2e-built-owner")
    assert set(changes(owner.up("--expect-no-changes"))) == {"unchanged"}


def test_run_without_a_login_for_the_registry_is_refused(
    registry: TrustedRegistry, owner: Stack, guest: Stack, tmp_path: Path
) -> None:
    """The owner's run trains on; of the guest's there is no pod that could not have its image."""
    before = training_pods(registry.lab, owner)
    there = registry.tags(PROGRAMS)
    set_program(guest, "e2e-built-guest", folder_of(tmp_path, "what the guest says"))
    guest.set("caBundle", str(registry.authority))
    with pytest.raises(PulumiFailedError) as refused:
        guest.up()
    assert registry.server.name in str(refused.value)
    assert "login" in str(refused.value)
    assert training_pods(registry.lab, owner) == before
    assert registry.tags(PROGRAMS) == there
    assert not [name for name in registry.lab.uids("pod", "statefulset") if name.endswith("-g")]


def test_run_on_anothers_platform_builds_and_pushes(
    registry: TrustedRegistry, owner: Stack, guest: Stack, tmp_path: Path
) -> None:
    """By a login of its own; nothing of the platform's stack has to be touched."""
    lab = registry.lab
    registry.let_push(guest)
    set_program(guest, "e2e-built-guest", folder_of(tmp_path, "what the guest says"))
    there = registry.tags(PROGRAMS)
    guest.up()
    assert_pulled(registry, f"{POD.removesuffix('-0')}-g-0")
    lab.wait_done("e2e-built-guest")
    assert "it says what the guest says" in said(lab, "e2e-built-guest")
    assert len(registry.tags(PROGRAMS)) > len(there)
    assert LOGIN.password not in guest.export()
    assert set(changes(guest.up("--expect-no-changes"))) == {"unchanged"}


@pytest.fixture(scope="module")
def private_base(registry: TrustedRegistry) -> Iterator[str]:
    """A base image that the registry gives to whoever has its login."""
    name = f"{registry.server.name}/{PRIVATE}:1"
    trust = {**os.environ, "SSL_CERT_FILE": str(registry.authority)}
    credentials = f"{LOGIN.user}:{LOGIN.password}"
    push = ["buildah", "push", "--quiet", "--creds", credentials, BASE, f"docker://{name}"]
    subprocess.run(push, env=trust, check=True)
    yield name
    subprocess.run(["buildah", "rmi", name], check=False, capture_output=True)


def test_private_base_image_takes_the_builders_own_login(
    registry: TrustedRegistry, guest: Stack, private_base: str, tmp_path: Path
) -> None:
    """The login of `imageDeliveryOptions` pushes, and is not used for `FROM`."""
    lab = registry.lab
    set_program(guest, "e2e-built-private", folder_of(tmp_path / "own", "all of it", private_base))
    before = training_pods(lab, guest)
    with pytest.raises(PulumiFailedError) as refused:
        guest.up()
    assert f"{registry.server.name}/{PRIVATE}" in str(refused.value)
    assert "authentication required" in str(refused.value)
    assert training_pods(lab, guest) == before
    logins = registry.lab.scratch / LOGINS
    logins.write_text(json.dumps({"auths": {registry.server.name: {"auth": LOGIN.encoded}}}))
    guest.up()
    lab.wait_done("e2e-built-private")
    assert "it says all of it" in said(lab, "e2e-built-private")


def test_registry_keeps_the_images_of_programs(
    registry: TrustedRegistry, owner: Stack, guest: Stack
) -> None:
    """As those of the trainer: another cluster may pull them."""
    there = registry.tags(PROGRAMS)
    guest.destroy()
    owner.destroy()
    assert registry.tags(PROGRAMS) == there != set()
