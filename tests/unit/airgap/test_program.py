"""What the program registers for a stack with a bundle."""

import json
import re
from pathlib import Path

import pytest

from infra.airgap.manifest import read_manifest
from infra.kinds import KINDS
from infra.node.doctor import make_plan
from infra.platform.airgap_files import STAGE
from infra.settings import parse_settings
from tests.unit.airgap.stocked import OPERATOR_IMAGES, stock
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import TWO, deployed
from tests.unit.program.parts import everything_before
from tests.unit.stacks import Deployment, deploy, raw_settings, without_secrets

SSH = {
    "host": "ssh",
    "sshHost": "node",
    "sshUser": "admin",
    "sshHostKey": "ssh-ed25519 AAAA",
    "sshPrivateKey": "the-key",
    "sudoPassword": "the-password",
}
SECRET = ("sshPrivateKey", "sudoPassword")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a complete bundle."""
    return stock(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module", params=["local", "ssh"])
def deployment(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Deployment]:
    """Return `local` or `ssh`, and what the program registers for such a stack with the bundle."""
    ssh = SSH if request.param == "ssh" else {}
    changes = {"bundle": str(folder), "datasetTokenizer": "gpt2", **ssh}
    keys = SECRET if ssh else ()
    return request.param, deploy("dev", tmp_path_factory.mktemp("machine"), changes, keys)


def test_all_is_checked_before_anything_is_written(deployment: tuple[str, Deployment]) -> None:
    """The bundle's files are checked before anything is written. Over SSH, they are sent after the
    doctor and before k3s is installed.
    """
    where, result = deployment
    # All objects in the cluster come after the provider.
    writers = {"data-root-folder", "cluster-k3s", "image-ensure", "cluster-provider"}
    writers |= {"bundle-on-host-stage", "bundle-on-host-send"} if where == "ssh" else set()
    for name in (*writers, "dataset-upload", "dataset-job", "training-job"):
        assert "bundle-verify" in everything_before(result, result.one(name)), name
    if where == "ssh":
        assert "bundle-on-host-send" in everything_before(result, result.one("cluster-k3s"))
        assert "doctor-host" in everything_before(result, result.one("bundle-on-host-stage"))


def test_k3s_gets_the_bundles_files_and_their_checksums(
    deployment: tuple[str, Deployment], folder: Path
) -> None:
    """The installation of k3s gets the folder of the bundle and the checksums of k3s and of all
    images.
    """
    where, result = deployment
    program = result.one("cluster-k3s").program
    place = STAGE if where == "ssh" else folder
    assert f"export K3S_BUNDLE={place}\n" in program
    manifest = read_manifest(folder)
    assert f"export K3S_SHA256={manifest.of('k3s')[0].sha256}\n" in program
    images = [*manifest.of("k3s-images"), *manifest.of("gpu-operator-image")]
    assert len(images) == 1 + len(OPERATOR_IMAGES)
    for entry in images:
        assert f"{entry.sha256} {entry.name}" in program


def test_chart_image_and_texts_come_from_the_bundle(
    deployment: tuple[str, Deployment], folder: Path
) -> None:
    """Chart, image, data set and merge table come from the bundle, and the pods have no address to
    download from.
    """
    _, result = deployment
    release = result.one("gpu-operator-release").inputs
    assert release["chart"] == str(folder / "charts/gpu-operator-v26.3.3.tgz")
    assert "repositoryOpts" not in release
    ensure = result.one("image-ensure").inputs["create"]
    assert f"--layout {folder}/images/trainer-" in ensure
    assert "--builder" not in ensure
    ranks = read_manifest(folder).of("tokenizer")[0].sha256
    variable = {
        "name": "DISTTRAIN_GPT2_RANKS",
        "value": f"/data/datasets/.incoming/{ranks}",
    }
    for name in ("dataset-job", "training-job"):
        (container,) = result.one(name).inputs["spec"]["template"]["spec"]["containers"]
        assert variable in container["env"]
    assert result.outputs["bpeFile"] == variable["value"]
    config = result.one("dataset-settings-config-map").inputs["data"]["run.yaml"]
    assert "file: /data/datasets/.incoming/" in config
    assert "http" not in config


def test_key_and_password_of_the_host_stay_secret(folder: Path, tmp_path: Path) -> None:
    """The command that sends the bundle to the host gets the SSH key and sudo's password by its
    environment, which is a secret. Nothing in the state has them in plain text.
    """
    result = deploy("dev", tmp_path, {"bundle": str(folder), **SSH}, SECRET)
    given = json.dumps(result.one("bundle-on-host-send").inputs["environment"])
    shown = json.dumps([without_secrets(each.wire) for each in result.resources])
    for secret in ("the-key", "the-password"):
        assert secret in given
        assert secret not in shown


def test_doctor_asks_nobody_outside(folder: Path) -> None:
    """With a bundle, the doctor does not check the way to the internet."""
    stack = parse_settings(raw_settings("dev", {"bundle": str(folder)}), (), "dev", KINDS)
    assert not make_plan(stack.own_platform).expect.internet
    without = parse_settings(raw_settings("dev"), (), "dev", KINDS)
    assert make_plan(without.own_platform).expect.internet


def test_k3s_of_others_gets_no_files_of_the_bundle(folder: Path, tmp_path: Path) -> None:
    """With an adopted k3s, no files are sent to the host. They would be of no use, and the files of
    another stack may be there.
    """
    changes = {"bundle": str(folder), "k3sExisting": "adopt", **SSH}
    result = deploy("dev", tmp_path, changes, SECRET)
    assert not [each.name for each in result.resources if each.name.startswith("bundle-on-host")]


def test_what_is_made_on_machines_names_its_stack(folder: Path, tmp_path: Path) -> None:
    """What is made on a machine is marked with the stack. Another stack may use the same machine,
    and must neither change nor remove it.
    """
    authority = tmp_path / "authority.pem"
    authority.write_text(AUTHORITY)
    result = deployed(tmp_path, TWO, bundle=str(folder), caBundle=str(authority))
    names = ["data-root-folder", "trust-bundle", "bundle-on-host-stage"]
    for name in (*names, "node-gpu2-trust-bundle", "node-gpu2-bundle-stage"):
        program = result.one(name).program
        assert re.search(r"export OWNER=.", program), name
        assert re.search(r"export STACK=\S*dev", program), name
