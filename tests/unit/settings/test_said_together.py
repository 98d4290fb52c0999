"""What the image's delivery and the storage need is said together with all other problems, and
once.
"""

from typing import Any

import pytest

from tests.unit.settings.reading import SSH, refusal

KEY = "ssh-ed25519 AAAA"
TWO = {"name": "gpu2", "address": "10.1.2.4", "host_key": KEY}
NODES = {
    **SSH,
    "nodeAddress": "10.1.2.3",
    "nodes": [TWO],
    "storageOptions": {"shared": True},
    "topology": "single-pod",
}
NAMED = {"imageRepository": "images.example.org/team/trainer"}
MIRROR = {**NODES, "imageDelivery": "mirror"}
ALONE = "imageDelivery: 'mirror' cannot be used: there is only one machine"
LOCAL = "imageRepository: 'localhost/disttrain/trainer' cannot be used: "
BUILDERS = "imageBuildOn: 'node' cannot be used: "
OLD = "imageDelivery: 'mirror' cannot be used: k3sVersion is v1.28.15+k3s1"


def lines(changes: dict[str, Any]) -> list[str]:
    """Return the problems of these settings, one a line, without the headline."""
    return [line.removeprefix("  - ") for line in refusal(changes).splitlines()[1:]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {**MIRROR, "k3sVersion": "v1.28.15+k3s1", "gpuOperator": "false", "gpus": 0},
            ["gpus: '0' cannot be used", OLD, LOCAL + "with imageDelivery: mirror k3s gives no"],
        ),
        (
            {**SSH, "imageDelivery": "mirror", "nodeAddress": "10.1.2.3"},
            [ALONE, LOCAL],
        ),
        (
            {**MIRROR, **NAMED, "k3sRegistries": {"mirrors": ["x"]}, "pods": -1},
            ["k3sRegistries.mirrors: [secret] cannot be used: it is not an object", "pods: '-1'"],
        ),
        (
            {**SSH, "imageDelivery": "registry", "imageBuildOn": "node", "dataSize": "50 GB"},
            ["dataSize: '50 GB'", BUILDERS + "with imageDelivery: registry the image", LOCAL],
        ),
        (
            {**NODES, "imageBuildOn": "node", "topolgy": "x"},
            [BUILDERS + "nodes lists several machines", "topolgy: 'x'"],
        ),
        (
            {**NODES, "storageOptions": {}, "gpus": 0, "imageBuildOn": "node"},
            ["gpus: '0'", BUILDERS, "nodes: ['gpu2'] cannot be used: the storage (host-path)"],
        ),
    ],
)
def test_needs_of_kinds_come_with_the_rest(changes: dict[str, Any], expected: list[str]) -> None:
    """What a delivery or a storage needs is said in the same error as all other problems. Otherwise
    the user would get these problems one at a time, after mending the others.
    """
    said = lines(changes)
    assert len(said) == len(expected), said
    assert all(line.startswith(start) for line, start in zip(said, expected, strict=True)), said


@pytest.mark.parametrize(
    "changes",
    [
        # A machine whose item is wrong is not a missing machine.
        {**MIRROR, **NAMED, "nodes": [{**TWO, "name": "GPU 2"}]},
        {**MIRROR, **NAMED, "nodes": "gpu2"},
        {**MIRROR, **NAMED, "k3sVersion": "1.34.2"},
        # The wrong value may stand for a kind with other needs.
        {**NODES, **NAMED, "imageDelivery": "miror", "imageBuildOn": "node"},
        {**NODES, "storage": "host_path", "storageOptions": {}},
        {**NODES, "storageOptions": {"shared": "yes"}},
        {**MIRROR, "imageRepository": "localhost"},
        {**NODES, "imageDelivery": "registry", "imageRepository": "localhost"},
        {"imageDelivery": "mirror", **NAMED, "cluster": "k8s"},
        {**MIRROR, **NAMED, "k3sExisting": "adpot"},
        {**MIRROR, **NAMED, "k3sRegistries": "none"},
        {"imageDelivery": "registry", **NAMED, "imageBuildOn": "node"},
        # `nodes` is refused here, and without it only the first machine would build.
        {**NODES, "k3sExisting": "adopt", "imageBuildOn": "node"},
    ],
)
def test_what_follows_from_wrong_values_is_silent(changes: dict[str, Any]) -> None:
    """One mistake gives one message: what a delivery or a storage would need is not said if that
    only follows from the wrong value.
    """
    assert len(lines(changes)) == 1, lines(changes)


@pytest.mark.parametrize(
    ("changes", "only"),
    [
        ({"k3sExisting": "adopt"}, "with k3sExisting: adopt"),
        ({"k3sExisting": "adopt", "k3sVersion": "v1.28.15+k3s1"}, "with k3sExisting: adopt"),
    ],
)
def test_cluster_of_others_has_one_message(changes: dict[str, Any], only: str) -> None:
    """On a k3s of others, the delivery `mirror` gets one message. What else it would need there
    helps nobody.
    """
    (said,) = lines({**SSH, "nodeAddress": "10.1.2.3", "imageDelivery": "mirror", **changes})
    assert said.startswith(f"imageDelivery: 'mirror' cannot be used: {only}")
