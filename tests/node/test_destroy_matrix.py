"""`pulumi destroy` in each combination of stack, cluster and data, with and without others' runs.

The API server and the engine are real. There is no kubelet: a small stand-in reports each Job as
complete, so that `pulumi up` of a run ends.
"""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from infra.kube.names import OWNER_LABEL
from infra.names import CLAIM_OF_CLASS
from sandbox.stack import PulumiFailedError, Stack
from tests.node.lab import DATA_ROOT, NAMESPACE, PLATFORM, Lab, counts, wait_for

THEIRS, THEIR_RUN = "organization/disttrain/theirs", "run-theirs"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "example.com/disks",  # does not exist, so the claim gets no volume
}
SIZE = {"cpu": "8", "memory": "16Gi", "pods": "110"}
ROOM = {"capacity": SIZE, "allocatable": SIZE}  # A kubelet would write this.
PRESET = {"topology": "single-pod", "preset": "shakespeare-char-cpu"}
MINE = f"{DATA_ROOT}/runs/checkpoint"


@dataclass(frozen=True)
class Place:
    """A cluster for a stack, and the place of its data.

    Args:
        lab: the lab with the host.
        kind: `ours`: k3s that `up` installs; `adopted`: somebody else's k3s on the host;
            `existing`: a cluster of which the stack has only a kubeconfig.
        is_purged: whether `destroy` is to remove the data.
    """

    lab: Lab
    kind: str
    is_purged: bool

    def prepare(self) -> None:
        """Make the cluster that the stack finds, with a storage class and room for pods."""
        if self.kind == "ours":
            return
        self.lab.install_by_hand(OWNER="somebody-else", STACK="organization/disttrain/another")
        self.lab.kubectl("apply", "-f", "-", stdin=json.dumps(CLASS))
        node = ("node", self.lab.host.name, "--subresource=status", "--type=merge")
        self.lab.kubectl("patch", *node, "--patch", json.dumps({"status": ROOM}))

    def stack(self, **more: str) -> Stack:
        """Return a new stack for this cluster; `more` has further settings."""
        lab = self.lab
        if self.kind == "existing":
            file = lab.scratch / "existing.kubeconfig"
            file.touch(mode=0o600)
            file.write_text(self._kubeconfig())
            claim = {"storage": "storage-class", "storageOptions": {"className": "disks"}}
            purge = {"dataOnDestroy": "purge", "purgeConfirmed": f"{NAMESPACE}/{CLAIM_OF_CLASS}"}
            cluster = {"cluster": "existing", "kubeconfig": str(file), **claim}
            return lab.new_stack(
                {**PLATFORM, **cluster, **more, **(purge if self.is_purged else {})}
            )
        adopt = {"k3sExisting": "adopt"} if self.kind == "adopted" else {}
        purge = {"dataOnDestroy": "purge", "purgeConfirmed": DATA_ROOT}
        return lab.stack(**adopt, **more, **(purge if self.is_purged else {}))

    def _kubeconfig(self) -> str:
        config = yaml.safe_load(self.lab.host.shell("cat /etc/rancher/k3s/k3s.yaml"))
        config["clusters"][0]["cluster"]["server"] = f"https://{self.lab.host.address}:6443"
        return yaml.safe_dump(config)

    def write_data(self) -> None:
        """Put a checkpoint into the data folder, if the stack has one."""
        if self.kind != "existing":
            self.lab.host.shell(f"echo precious >{MINE}")

    def has_data(self) -> bool:
        """Return whether the checkpoint is there, or the claim that leads to it."""
        if self.kind != "existing":
            return self.lab.host.exists(MINE)
        return f"PersistentVolumeClaim/{CLAIM_OF_CLASS}" in self.lab.objects()

    def assert_nothing_else_is_left(self) -> None:
        """Check that the cluster and the host, without the data, are as before the first `up`."""
        lab = self.lab
        if self.kind == "ours":
            assert lab.differences() == []
            return
        kept = (
            {"Namespace/disttrain", f"PersistentVolumeClaim/{CLAIM_OF_CLASS}"}
            if self.has_claim()
            else {}
        )
        assert set(lab.objects()) == set(kept)
        assert owned(lab) == []
        assert lab.host.shell("systemctl is-active k3s").strip() == "active"

    def has_claim(self) -> bool:
        """Return whether `destroy` has to leave a claim."""
        return self.kind == "existing" and not self.is_purged

    def take_away(self) -> None:
        """Remove what the test itself has made."""
        if self.kind != "ours":
            self.lab.remove_by_hand()
        (self.lab.scratch / "existing.kubeconfig").unlink(missing_ok=True)


def owned(lab: Lab) -> list[str]:
    """Return what stacks of this program own in the cluster, of the kinds that a stack can make."""
    kinds = "namespaces,pv,pvc,configmaps,secrets,jobs,services,roles,rolebindings,clusterroles"
    wanted = ("get", kinds, "--all-namespaces", "--output=json", f"--selector={OWNER_LABEL}")
    items = json.loads(lab.kubectl(*wanted))["items"]
    names = (f"{item['kind']}/{item['metadata']['name']}" for item in items)
    return sorted(name for name in names if name != f"ConfigMap/{THEIR_RUN}")


COMPLETE = ("SuccessCriteriaMet", "Complete")
MOMENT = "2026-01-01T00:00:00Z"


@contextlib.contextmanager
def complete_jobs(lab: Lab) -> Iterator[None]:
    """Report each Job as complete during the block, like the Jobs' controller and a kubelet."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.5):
            found = lab.try_kubectl("get", "jobs", "--all-namespaces", "--output=json")
            for item in json.loads(found or "{}").get("items", ()):
                if not item.get("status", {}).get("conditions"):
                    complete(lab, item["metadata"])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def complete(lab: Lab, about: dict[str, Any]) -> None:
    """Write into a Job's status that it is complete."""
    about_time = {"lastTransitionTime": MOMENT, "lastProbeTime": MOMENT}
    conditions = [{"type": kind, "status": "True", **about_time} for kind in COMPLETE]
    times = {"startTime": MOMENT, "completionTime": MOMENT}
    status = {"status": {"conditions": conditions, "succeeded": 1, **times}}
    place = (about["name"], "--namespace", about["namespace"], "--subresource=status")
    lab.try_kubectl("patch", "job", *place, "--type=merge", "--patch", json.dumps(status))


@pytest.fixture
def place(lab: Lab, cluster: str, data: str) -> Iterator[Place]:
    """Yield a prepared cluster, and remove it afterwards."""
    place = Place(lab, cluster, is_purged=data == "purged")
    place.prepare()
    yield place
    place.take_away()


def assert_refused(lab: Lab, stack: Stack) -> None:
    """Check that `destroy` is refused, changes nothing, and names the command that has to come
    first.
    """

    def everything() -> tuple[Any, ...]:
        return lab.resources(stack), lab.objects(), owned(lab), lab.host.files()

    before = everything()
    with pytest.raises(PulumiFailedError) as error:
        stack.destroy()
    assert f"pulumi destroy --stack {THEIRS}" in re.sub(r"\s+", " ", str(error.value))
    assert everything() == before


@pytest.mark.parametrize("others", ["alone", "others stand"])
@pytest.mark.parametrize("data", ["kept", "purged"])
@pytest.mark.parametrize("cluster", ["ours", "adopted", "existing"])
@pytest.mark.parametrize("which", ["platform", "both"])
def test_destroy_of_a_platform_in_each_cell(
    lab: Lab, place: Place, which: str, others: str
) -> None:
    """`destroy` of a platform removes everything but data that are to be kept.

    While runs of other stacks use the platform, `destroy` is refused.
    """
    stack = place.stack(**(PRESET if which == "both" else {}))
    with complete_jobs(lab):
        stack.up()
    place.write_data()
    if others == "others stand":
        lab.put_run("theirs", THEIRS, THEIR_RUN)
        assert_refused(lab, stack)
        lab.take_run(THEIR_RUN)
    stack.destroy()
    assert lab.resources(stack) == []
    assert place.has_data() is not place.is_purged
    place.assert_nothing_else_is_left()


@pytest.mark.parametrize("others", ["alone", "others stand"])
@pytest.mark.parametrize("data", ["kept", "purged"])
@pytest.mark.parametrize("cluster", ["ours", "adopted", "existing"])
def test_destroy_of_a_run_in_each_cell(lab: Lab, place: Place, others: str) -> None:
    """`destroy` of a run removes only the run's own objects.

    The platform, its data and runs of other stacks stay as they are.
    """
    platform = place.stack()
    platform.up()
    before = owned(lab)
    run = lab.run_stack(platform.name)
    with complete_jobs(lab):
        run.up()
    assert set(owned(lab)) > set(before)
    place.write_data()
    if others == "others stand":
        lab.put_run("theirs", THEIRS, THEIR_RUN)
    run.destroy()
    assert lab.resources(run) == []
    wait_for("the run's objects to be gone", lambda: owned(lab) == before)
    assert place.has_data()
    if others == "others stand":
        lab.take_run(THEIR_RUN)  # This fails if the record is gone.
    assert counts(platform.up()).keys() == {"unchanged"}
    platform.destroy()
