"""The delivery `mirror`: what is refused, what k3s is told, and what each machine runs."""

import json
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest
import yaml

from infra.deliveries import DELIVERIES
from infra.node.doctor_plan import Plan
from infra.node.k3s_observation import K3sObservation
from infra.platform.registries import with_shared
from tests.unit.platform.machines import FITTING, IMPORTED, THREE, TWO, before, deployed, job
from tests.unit.stacks import Deployment, deploy, without_secrets

HOST = "images.disttrain.internal"
NAME = f"{HOST}/trainer"
MIRRORED: dict[str, object] = {"imageDelivery": "mirror", "imageRepository": NAME}
ENTRY = {"mirrors": {HOST: {}}}


def mirrored(scratch: Path, *nodes: object, **changes: object) -> Deployment:
    """Return what the program registers with this delivery, by default for two further machines."""
    return deployed(scratch, *(nodes or (TWO, THREE)), **{**MIRRORED, **changes})


def variables(result: Deployment, name: str) -> dict[str, Any]:
    """Return the variables of the script that installs k3s on a further machine."""
    return job(result, name)["variables"]["agent"]


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a name of this machine": (
        {"imageRepository": "localhost/disttrain/trainer"},
        r"imageRepository: 'localhost/disttrain/trainer' cannot be used: with imageDelivery: "
        r"mirror .* pulumi config set imageRepository images\.disttrain\.internal/trainer",
    ),
    "a port of this machine": (
        {"imageRepository": "127.0.0.1:5000/a/b"},
        r"imageRepository: '127\.0\.0\.1:5000/a/b' cannot be used",
    ),
    "an old k3s": (
        {"k3sVersion": "v1.30.7+k3s1", "gpuOperator": "false"},
        r"k3sVersion is v1\.30\.7\+k3s1, and .* v1\.29\.12, v1\.30\.8, v1\.31\.4",
    ),
    "a k3s before the feature": (
        {"k3sVersion": "v1.28.15+k3s1", "gpuOperator": "false"},
        r"k3sVersion is v1\.28\.15",
    ),
    "an entry with endpoints": (
        {"k3sRegistries": {"mirrors": {HOST: {"endpoint": ["https://secret.example"]}}}},
        r"k3sRegistries\.mirrors\['images\.disttrain\.internal'\]: \[secret\] cannot be used",
    ),
    "an entry that rewrites": (
        {"k3sRegistries": {"mirrors": {HOST: {"rewrite": {"a": "b"}}}}},
        r"it sends the nodes elsewhere",
    ),
    "mirrors as a list": ({"k3sRegistries": {"mirrors": [HOST]}}, r"it is not an object"),
    "no time at all": (
        {"imageDeliveryOptions": {"pullTimeoutSeconds": 0}},
        r"imageDeliveryOptions\.pullTimeoutSeconds: 0 cannot be used",
    ),
    "a time that is none": (
        {"imageDeliveryOptions": {"keepUnusedMinutes": -1}},
        r"imageDeliveryOptions\.keepUnusedMinutes: -1 cannot be used",
    ),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_the_nodes_could_not_share_is_refused_before_anything_is_made(
    tmp_path: Path, what: str
) -> None:
    """Names, releases of k3s and registry entries with which nodes cannot share an image are
    refused before anything is registered (`deploy` checks it), and no secret of an entry is shown.
    """
    changes, words = REFUSED[what]
    with pytest.raises(pulumi.RunError, match=words) as refused:
        mirrored(tmp_path, **changes)
    assert "secret.example" not in str(refused.value)


def test_one_machine_and_clusters_of_others_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    """`mirror` is refused with one machine and on clusters of others, with the deliveries that can
    be set instead.
    """
    with pytest.raises(
        pulumi.RunError, match=r"there is only one machine.* Set import, which does the"
    ):
        deployed(tmp_path, **MIRRORED)
    with pytest.raises(
        pulumi.RunError, match=r"with cluster: existing disttrain does not change the nodes.* Set"
    ):
        deploy("sandbox", tmp_path, MIRRORED)
    with pytest.raises(pulumi.RunError, match=r"with k3sExisting: adopt.* Set import or registry"):
        deployed(tmp_path, **MIRRORED, k3sExisting="adopt")


@pytest.mark.parametrize(
    "version", ["v1.29.12+k3s1", "v1.30.8+k3s1", "v1.31.4+k3s1", "v1.32.0+k3s1"]
)
def test_first_releases_that_have_the_feature_are_taken(tmp_path: Path, version: str) -> None:
    """The first releases of k3s with the feature are accepted, with registry entries of the user's
    own that do not contradict it.
    """
    own = {"mirrors": {HOST: None, "docker.io": {"endpoint": ["https://cache.example"]}}}
    # The GPU Operator's default release needs a later k3s.
    result = mirrored(tmp_path, k3sVersion=version, k3sRegistries=own, gpuOperator="false")
    assert result.one("image-ensure-gpu2")


def test_server_alone_has_the_flag_and_every_node_the_entry(tmp_path: Path) -> None:
    """Only the server gets the flag, which an agent would refuse. Every node gets the entry for the
    registry, without which it would take no part (k3s#10056).
    """
    own = {"mirrors": {"docker.io": {"endpoint": ["https://cache.example"]}}, "configs": {"a": {}}}
    result = mirrored(tmp_path, k3sRegistries=own)
    program = result.one("cluster-k3s").inputs["stdin"]
    assert "export EMBEDDED_REGISTRY=true\n" in program
    texts = [variables(result, name)["K3S_REGISTRIES"] for name in ("gpu2", "gpu3")]
    assert shlex.quote(texts[0]) in program
    assert texts[0] == texts[1]
    both = {**own, "mirrors": {**own["mirrors"], **ENTRY["mirrors"]}}
    assert yaml.safe_load(texts[0]) == both
    for name in ("gpu2", "gpu3"):
        assert "EMBEDDED_REGISTRY" not in variables(result, name)
        assert "embedded-registry" not in job(result, name)["scripts"]["agent"]
    other = deployed(tmp_path, TWO, **IMPORTED)
    assert "export EMBEDDED_REGISTRY=''\n" in other.one("cluster-k3s").inputs["stdin"]
    assert variables(other, "gpu2")["K3S_REGISTRIES"] == ""


def test_every_agent_starts_anew_when_the_server_gets_the_flag() -> None:
    """The file of registries changes when `mirror` is set, even if the entry was there already. So
    every agent is restarted, and learns of the server's flag.
    """
    own = json.dumps(ENTRY, indent=2, sort_keys=True)
    assert yaml.safe_load(with_shared(own, HOST)) == yaml.safe_load(own)
    assert with_shared(own, HOST) != own
    assert with_shared("{}", HOST) == with_shared(own, HOST)


def test_passwords_of_other_registries_stay_secret(tmp_path: Path) -> None:
    """Passwords of other registries reach k3s and are a secret for the engine."""
    own = {"configs": {"r.example": {"auth": {"password": "sekret"}}}}
    changes = {**FITTING, **MIRRORED, "nodes": [TWO], "k3sRegistries": own}
    with patch(
        "infra.platform.further_machines.observe_k3s",
        lambda *_, **__: K3sObservation("repair-1", ""),
    ):
        result = deploy("dev", tmp_path, changes, ["k3sRegistries"])
    for name in ("cluster-k3s", "node-gpu2-k3s"):
        command = result.one(name)
        assert "sekret" in command.inputs["stdin"]
        assert "sekret" not in json.dumps(without_secrets(command.wire))


def test_first_machine_shares_and_the_others_pull_what_it_has(tmp_path: Path) -> None:
    """The first machine gets the image and shares it, and each other machine pulls it then by its
    digest. The resources have the names and deletes of the delivery `import`, so that a change
    between the two removes no image.
    """
    result = mirrored(tmp_path)
    first = result.one("image-ensure")
    words = shlex.split(first.inputs["create"])
    assert words[3] == "ensure"
    assert "--share" in words
    for name in ("gpu2", "gpu3"):
        command = result.one(f"image-ensure-{name}")
        words = shlex.split(command.inputs["create"])
        assert words[:4] == [".venv/bin/python", "-m", "infra.image", "pull"]
        assert words[words.index("--limit-seconds") + 1] == "1800"
        assert "IMAGE_DIGEST" in command.inputs["environment"]
        others = before(result, f"image-ensure-{name}")
        assert "image-ensure" in others
        assert not [other for other in others if other.startswith("image-ensure-")]
        assert f"image-ensure-{name}" in before(result, "training-job")
    imported = deployed(tmp_path, TWO, THREE, **{**IMPORTED, "imageRepository": NAME})
    for name in ("image-ensure", "image-ensure-gpu2", "image-ensure-gpu3"):
        assert imported.one(name).inputs["delete"] == result.one(name).inputs["delete"]


def test_kubelet_may_pull_and_the_doctor_asks_for_the_ports(tmp_path: Path) -> None:
    """The kubelet may pull the image itself, and the doctor checks the ports that the delivery
    needs.
    """
    result = mirrored(tmp_path)
    spec = result.one("training-job").inputs["spec"]["template"]["spec"]
    assert {c["imagePullPolicy"] for c in spec["containers"]} == {"IfNotPresent"}
    assert spec["containers"][0]["image"].startswith(f"{NAME}:")
    for name, expected in ((mirrored, True), (deployed, False)):
        plan = name(tmp_path, TWO).one("node-gpu2-doctor-host").inputs["stdin"]
        assert Plan.from_json(plan).expect.embedded_registry is expected


def test_machine_that_is_lost_is_asked_for_nothing(tmp_path: Path) -> None:
    """The command of a lost machine never runs, even if it has changed, and the engine only forgets
    it.
    """
    lost = mirrored(tmp_path, {**TWO, "gone": True}, THREE).one("image-ensure-gpu2")
    assert lost.request.retainOnDelete
    assert {"create", "environment"} <= set(lost.request.ignoreChanges)


def test_first_machine_may_build_the_image_itself(tmp_path: Path) -> None:
    """`imageBuildOn: node` is accepted, because only the first machine builds the image and the
    others get it from there.
    """
    result = mirrored(tmp_path, imageBuildOn="node")
    assert "--build-on node" in result.one("image-ensure").inputs["create"]
    assert "--build-on" not in result.one("image-ensure-gpu2").inputs["create"]


def test_no_script_of_a_host_names_the_kind() -> None:
    """No script of a host names the setting `imageDelivery`: each delivery is described by its own
    file.
    """
    scripts = Path(__file__).parents[3] / "infra" / "node" / "scripts"
    texts = "".join(file.read_text() for file in scripts.rglob("*.sh"))
    assert "imageDelivery" not in texts
    assert DELIVERIES["mirror"].embedded_registry
