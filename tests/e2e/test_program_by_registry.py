"""The image that `program.build` makes goes by a real registry with a login.

It comes from the stack that owns the platform, from a run on that platform that has a kubeconfig
and nothing else, and from a private base. The tests build on each other in file order, with one
registry and one platform.
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
POD, GUESTS_POD = "train-multipod-0", "train-multipod-g-0"
KINDS = ("pod", "statefulset", "service", "configmap", "secret")
PATTERN = r"step (?P<step>\d+)/(?P<total>\d+)"


@pytest.fixture(scope="module")
def registry(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustedRegistry]:
    with trusted_registry(lab, tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def owner(registry: TrustedRegistry) -> Iterator[Stack]:
    """Yield a stack that owns the platform and has a program of its own; it is not up."""
    ours = {"preset": None, "datasetFile": None}  # the template sets these, for our trainer
    made = registry.stack("e2e-built-owner", {"topology": "multi-pod", "processesPerPod": "1"})
    made.set_all({**ours, "pods": "1"})
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def guest(registry: TrustedRegistry, owner: Stack) -> Iterator[Stack]:
    """Yield a stack with a run on that platform, which is not up and has no login for the registry.

    The platform's login is a secret of the other stack, and docker or podman have kept none.
    """
    logins = registry.lab.scratch / LOGINS
    logins.write_text(json.dumps({"auths": {}}))
    settings = {"platform": owner.name, "instance": "g", "pods": "1", "processesPerPod": "1"}
    made = registry.lab.stack("e2e-built-guest", "sandbox-multipod", settings)
    made.set_all({"preset": None, "datasetFile": None})
    made.environment["REGISTRY_AUTH_FILE"] = str(logins)
    yield made
    made.destroy()


def folder_of(folder: Path, words: str, base: str = BASE) -> Path:
    """Return a folder with a Dockerfile, whose program says these words."""
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
    """Return what node 0 has printed."""
    return (lab.run_dir(run_name) / "logs" / "node-00000.log").read_text()


def assert_pulled(registry: TrustedRegistry, pod: str) -> None:
    """Check that the kubelet has pulled the pod's image from the registry, by the pod's Secret."""
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
    """`up` of the platform's stack builds and pushes the program's image, and the kubelet pulls it.

    The next `up` changes nothing.
    """
    set_program(owner, "e2e-built-owner", folder_of(tmp_path, "what the owner says"), ENDLESS)
    output = owner.up()
    assert f"{PROGRAMS}:" in output
    assert_pulled(registry, POD)
    assert "it says what the owner says" in said(registry.lab, "e2e-built-owner")
    assert set(changes(owner.up("--expect-no-changes"))) == {"unchanged"}


def test_run_without_a_login_for_the_registry_is_refused(
    registry: TrustedRegistry, owner: Stack, guest: Stack, tmp_path: Path
) -> None:
    """`up` of a run that has to push an image and has no login is refused, and names the registry.

    No image is pushed, nothing is made in the cluster, and the owner's run goes on. Otherwise pods
    would wait for an image that does not exist.
    """
    before = registry.lab.uids(*KINDS)
    there = registry.tags(PROGRAMS)
    set_program(guest, "e2e-built-guest", folder_of(tmp_path, "what the guest says"))
    guest.set("caBundle", str(registry.authority))
    with pytest.raises(PulumiFailedError) as refused:
        guest.up()
    assert registry.server.name in str(refused.value)
    assert "login" in str(refused.value)
    assert registry.lab.uids(*KINDS) == before
    assert registry.tags(PROGRAMS) == there


def test_run_on_anothers_platform_builds_and_pushes(
    registry: TrustedRegistry, owner: Stack, guest: Stack, tmp_path: Path
) -> None:
    """With a login of its own, a run on another stack's platform can build and push its image.

    The platform's stack does not have to change. The password is not in the state.
    """
    lab = registry.lab
    registry.let_push(guest)
    set_program(guest, "e2e-built-guest", folder_of(tmp_path, "what the guest says"))
    there = registry.tags(PROGRAMS)
    guest.up()
    assert_pulled(registry, GUESTS_POD)
    lab.wait_done("e2e-built-guest")
    assert "it says what the guest says" in said(lab, "e2e-built-guest")
    assert len(registry.tags(PROGRAMS)) > len(there)
    assert LOGIN.password not in guest.export()
    assert set(changes(guest.up("--expect-no-changes"))) == {"unchanged"}


@pytest.fixture(scope="module")
def private_base(registry: TrustedRegistry) -> Iterator[str]:
    """Yield the name of a base image that the registry gives only to those who have its login."""
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
    """A private base image in `FROM` is pulled by the login that docker or podman keep.

    The login of `imageDeliveryOptions` is only for the push.
    """
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
    """`destroy` leaves programs' images in the registry, because another cluster may pull them."""
    there = registry.tags(PROGRAMS)
    guest.destroy()
    owner.destroy()
    assert registry.tags(PROGRAMS) == there != set()
