"""Multus on a cluster of the sandbox, and a second network of its pods.

The real Multus runs here, as a program beside the other network plugins. On users' clusters a
DaemonSet copies it there, which needs an image from a registry.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from sandbox.configuration import PODS_NETWORK
from sandbox.layout import Layout
from sandbox.network import NODE_LINK
from sandbox.toolchain import tool_folder
from sandbox.tools.services import MULTUS
from tests.e2e.lab import Lab, wait_for

DEFINITION = "network-attachment-definitions.k8s.cni.cncf.io"
ATTACHMENTS = "k8s.v1.cni.cncf.io/networks"
GIVEN = "k8s.v1.cni.cncf.io/network-status"  # Multus writes what a pod has got
SUBNET = "192.0.2.0/24"
SETTINGS_FILE = "00-multus.conf"  # containerd takes the first file by the alphabet


@contextmanager
def multus(lab: Lab) -> Iterator[None]:
    """Let the first node's pods get further networks for as long as the context lasts."""
    layout, folder = lab.cluster.layout, tool_folder(MULTUS)
    program, settings = layout.cni_plugins / "multus", layout.cni_settings / SETTINGS_FILE
    lab.kubectl("apply", "-f", str(folder / "networks-crd.yaml"))
    lab.kubectl("wait", f"crd/{DEFINITION}", "--for=condition=Established", "--timeout=60s")
    program.symlink_to(folder / "multus")
    settings.write_text(json.dumps(_settings(layout)))
    try:
        yield
    finally:
        settings.unlink()
        program.unlink()
        lab.kubectl("delete", "crd", DEFINITION)


def _settings(layout: Layout) -> dict[str, object]:
    """The file of Multus: every pod has the cluster's own network first.

    Of the cluster's own plugins only the first is named, which makes the interface. Multus 4.3.0
    does not keep the settings of a whole list until the pod ends ("no IP ranges specified").
    https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/configuration.md
    """
    pods = json.loads((layout.cni_settings / PODS_NETWORK).read_text())
    first = {"cniVersion": pods["cniVersion"], "name": pods["name"], **pods["plugins"][0]}
    return {
        "cniVersion": pods["cniVersion"],
        "name": "multus",
        "type": "multus",
        "delegates": [first],
        "kubeconfig": str(layout.kubeconfig),
    }


def make_network(lab: Lab, name: str) -> None:
    """Make the second network `name` in the namespace `default`, and wait until pods get it.

    containerd notices the settings of Multus soon after they were written, and says nothing of it.
    """
    ranges = [[{"subnet": SUBNET}]]
    config = {
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": NODE_LINK,
        "mode": "bridge",
        "ipam": {"type": "host-local", "ranges": ranges},
    }
    made = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"config": json.dumps(config)},
    }
    file = lab.scratch / f"{name}.yaml"
    file.write_text(yaml.safe_dump(made))
    lab.kubectl("apply", "-f", str(file), namespace="default")
    wait_for("a pod in the second network", lambda: _a_pod_gets_it(lab, name), 120)


def _a_pod_gets_it(lab: Lab, network: str) -> bool:
    name = "in-second-network"
    overrides = {"metadata": {"annotations": {ATTACHMENTS: network}}}
    (image,) = [i for i in lab.ctr("images", "ls", "-q").split() if "pause" in i and "@" not in i]
    lab.kubectl(
        *("run", name, f"--image={image}", "--restart=Never", "--image-pull-policy=Never"),
        f"--overrides={json.dumps(overrides)}",
        namespace="default",
    )
    try:
        lab.kubectl(
            "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s", namespace="default"
        )
        pod = lab.get("pod", name, namespace="default")
    finally:
        lab.kubectl("delete", "pod", name, "--grace-period=1", namespace="default")
    given = json.loads(pod["metadata"].get("annotations", {}).get(GIVEN, "[]"))
    return any(each.get("interface") == "net1" for each in given)
