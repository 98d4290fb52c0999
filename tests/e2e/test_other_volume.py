"""The volume of a run that trains changes, by `pulumi preview` and `pulumi up`.

Another size means another PersistentVolume of the same folder, so the run finds what it has saved.
On another folder or kind of storage the run starts anew, and what it has saved stays where it is.
The tests build on each other in file order.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

RUN, GUEST = "e2e-volume", "e2e-volume-guest"
CLASS, GIVEN, TEAM = "e2e-volume-class", "e2e-volume-given", "e2e-volume-team"
OF_CLASS = "disttrain-pvc-class"


@pytest.fixture(scope="module")
def folders(lab: Lab) -> Iterator[Path]:
    """Make what an administrator would: a class with a volume for it, and a claim in a namespace.

    It yields the folder with the folders of the volumes.
    """
    place = lab.cluster.data_root.parent / "other"
    place.mkdir()
    for name in (CLASS, GIVEN):
        (place / name).mkdir()
        (place / name).chmod(0o777)
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": GIVEN,
        "resources": {"requests": {"storage": "50Gi"}},
    }
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        volume(CLASS, place / CLASS, CLASS),
        volume(GIVEN, place / GIVEN, ""),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": GIVEN, "namespace": TEAM},
            "spec": claim,
        },
    ]
    file = lab.scratch / "volumes.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    lab.kubectl("apply", "-f", str(file), namespace=TEAM)
    bound = "--for=jsonpath={.status.phase}=Bound"
    lab.kubectl("wait", f"pvc/{GIVEN}", bound, "--timeout=300s", namespace=TEAM)
    yield place
    lab.kubectl("delete", "namespace", TEAM, NAMESPACE, "--ignore-not-found")
    lab.kubectl("delete", "persistentvolume", CLASS, GIVEN, "--ignore-not-found")
    lab.kubectl("delete", "storageclass", CLASS)
    shutil.rmtree(place)


def volume(name: str, folder: Path, class_name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": class_name,
        "hostPath": {"path": str(folder), "type": "Directory"},
    }
    about = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    return {**about, "spec": spec}


@pytest.fixture(scope="module")
def stack(lab: Lab, folders: Path) -> Iterator[Stack]:
    assert folders
    made = lab.stack(RUN, "sandbox", run_settings(RUN, ENDLESS))
    made.up()
    yield made
    made.destroy()


def last_step(lab: Lab, folder: Path | None = None) -> int:
    """Return the last step of the run in a data folder, which by default is the cluster's own."""
    run = folder / "runs" / RUN if folder else lab.run_dir(RUN)
    return max((point["step"] for point in train_points(run)), default=0)


def saved(folder: Path) -> set[str]:
    """Return the names of the run's checkpoints in a data folder."""
    return {each.name for each in (folder / "runs" / RUN / "checkpoints").glob("step-*")}


def leave_for(lab: Lab, stack: Stack, old: Path, new: Path, **settings: str | None) -> None:
    """Change settings under the run: it starts anew in `new`, and what it has saved stays in `old`.

    A preview comes first, as users do it, and changes nothing.
    """
    wait_for("a checkpoint", lambda: saved(old), 300)
    stack.set_all(settings)
    stack.preview()
    before = last_step(lab, old)
    wait_for("the run, which a preview leaves alone", lambda: last_step(lab, old) > before, 300)
    stack.up()
    kept, ended = saved(old), last_step(lab, old)
    wait_for("the run to start anew", lambda: last_step(lab, new) > 0, 300)
    wait_for("a checkpoint there", lambda: saved(new), 300)
    assert saved(old) == kept
    assert last_step(lab, old) == ended, "nobody writes to the old volume any more"


def claim_and_volumes(lab: Lab) -> tuple[str, list[str]]:
    """Return the name of the only claim, and those of our volumes."""
    volumes = [item for item in lab.left() if item.startswith("persistentvolume/")]
    return lab.claim()["metadata"]["name"], volumes


def test_run_goes_on_when_its_volume_becomes_another(lab: Lab, stack: Stack) -> None:
    """If `dataSize` changes, `up` makes another volume and claim, and the run goes on from what it
    saved.

    The preview before that works, and changes nothing.
    """
    first, _ = claim_and_volumes(lab)
    wait_for("a checkpoint", lambda: any(lab.run_dir(RUN).glob("checkpoints/step-*")), 300)
    stack.set("dataSize", "60Gi")
    stack.preview()
    assert lab.claim()["metadata"]["name"] == first, "a preview changes nothing"
    before = last_step(lab)
    stack.up()
    second, volumes = claim_and_volumes(lab)
    assert second != first
    assert len(volumes) == 1
    assert stack.output("claim") == second
    wait_for("the run to go on", lambda: last_step(lab) > before, 300)
    log = lab.kubectl("logs", "--selector=app.kubernetes.io/component=training", "--tail=-1")
    assert "continuing after step" in log


def test_volume_stays_while_a_run_of_another_stack_uses_it(lab: Lab, stack: Stack) -> None:
    """`up` refuses to replace the claim while a run of another stack uses it.

    Otherwise the claim would be deleted under its pods, and `up` would wait for them until its
    limit. Once that run is destroyed, `up` replaces the claim.
    """
    guest = lab.stack(GUEST, "sandbox-multipod", {**run_settings(GUEST, 20), "platform": RUN})
    guest.up()
    try:
        lab.wait_done(GUEST)
        claim, volumes = claim_and_volumes(lab)
        stack.set("dataSize", "70Gi")
        with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{GUEST}") as said:
            stack.up()
        assert f"another claim than {claim} of namespace {NAMESPACE}" in str(said.value)
        assert claim_and_volumes(lab) == (claim, volumes)
        assert "deletionTimestamp" not in lab.claim()["metadata"]
    finally:
        guest.destroy()
    stack.up()
    assert lab.claim()["metadata"]["name"] != claim


def test_run_moves_to_another_data_root(lab: Lab, stack: Stack, folders: Path) -> None:
    """With another `dataRoot` the run starts anew there.

    Back in its first folder the run goes on after what it had saved there.
    """
    first, second = lab.cluster.data_root, folders / "second"
    leave_for(lab, stack, first, second, dataRoot=str(second))
    before = last_step(lab, first)
    stack.set("dataRoot", str(first))
    stack.up()
    wait_for("the run to go on", lambda: last_step(lab, first) > before, 300)


def test_run_moves_to_a_storage_class(lab: Lab, stack: Stack, folders: Path) -> None:
    """A run can move from a folder to a storage class, where it starts anew.

    If the last `up` was told to purge the folder, the move is refused, and takes two steps.
    """
    root, new = lab.cluster.data_root, folders / CLASS
    stack.set_all({"dataOnDestroy": "purge", "purgeConfirmed": str(root)})
    stack.up()
    class_ = {"storage": "storage-class", "storageOptions.className": CLASS}
    stack.set_all({"dataOnDestroy": "keep", **class_})
    with pytest.raises(PulumiFailedError, match="this change would delete the data of the former"):
        stack.preview()
    stack.set_all({"storage": "host-path", "storageOptions.className": None})
    stack.up()
    leave_for(lab, stack, root, new, **class_)
    assert lab.claim()["metadata"]["name"] == OF_CLASS
    assert claim_and_volumes(lab)[1] == []


def test_run_moves_to_somebody_elses_claim(lab: Lab, stack: Stack, folders: Path) -> None:
    """A run can move to a claim that somebody else has in another namespace.

    The stack's former namespace stays with its claim, whose data are kept. A claim that is not
    there is refused by the preview.
    """
    given: dict[str, str | None] = {
        "storage": "existing-claim",
        "storageOptions.className": None,
        "storageOptions.claimName": GIVEN,
        "namespaceExisting": "use",
    }
    stack.set_all(given)
    with pytest.raises(PulumiFailedError, match="has no such claim"):
        stack.preview()
    leave_for(lab, stack, folders / CLASS, folders / GIVEN, namespace=TEAM)
    assert stack.output("claim") == GIVEN
    kept = lab.get("persistentvolumeclaim", OF_CLASS)
    assert kept["status"]["phase"] == "Bound"
    wait_for("the old pods to go", lambda: not lab.get("pods")["items"], 120)
    assert f"namespace/{NAMESPACE}" not in lab.left(), "the next stack of this name takes it up"
