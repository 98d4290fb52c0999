"""What a user is told about a wrong setting of machines, clusters, queues, controllers and
programs.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.settings.kubeconfig import check_paths
from tests.unit.settings.form import FORM
from tests.unit.settings.reading import SSH, read, refusal
from tests.unit.stacks import PROJECT_FILE, files_of_this_machine

TWO: dict[str, Any] = {
    "name": "gpu2",
    "address": "10.1.2.4",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
}
REGISTRY = {"imageDelivery": "registry", "imageRepository": "registry.example.org/team/trainer"}
CLAIM = {"cluster": "existing", "storage": "existing-claim", "namespaceExisting": "use", **REGISTRY}
CLASS = {"cluster": "existing", "storage": "storage-class", **REGISTRY}
NFS = {"storage": "nfs", "storageOptions": {"server": "nas.lan", "path": "/exports/training"}}
VOLCANO = {"topology": "volcano", "gpusPerPod": 1}
MPI = {"topology": "mpijob", "gpusPerPod": 1}


def nfs(**options: object) -> dict[str, Any]:
    """Return the settings of an NFS storage with these options."""
    return {**NFS, "storageOptions": {**NFS["storageOptions"], **options}}  # type: ignore[dict-item]


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    # a list where an object is wanted, and the other way round
    (
        SSH | {"nodes": TWO},
        [
            "nodes: {name: 'gpu2'",
            "it is a mapping of keys and must be a list. Set its items: `pulumi config set --path",
        ],
    ),
    ({"nodeSelector": ["a=b"]}, ["it is a list and must be a mapping of keys. Set what is"]),
    # choices
    ({"storage": "NFS"}, ["storage: 'NFS' cannot be used: ", "(did you mean nfs?)"]),
    ({"placement": "Packed"}, ["(did you mean packed?)"]),
    ({"cluster": "eks"}, ["cluster: 'eks' cannot be used: ", "(did you mean existing?)"]),
    ({"cluster": "GKE"}, ["(did you mean existing?)"]),
    ({"topology": "kubeflow"}, ["volcano, lws, none or auto."]),
    # options of kinds
    (
        {"storage": "host-path", "storageOptions": {"share": True}},
        [
            "storageOptions.share: true cannot be used: ",
            "no such option. Set shared, the only one, or remove it.",
        ],
    ),
    (
        CLASS | {"storageOptions": {"classname": "efs-sc"}},
        ["Set one of className, accessMode (did you mean className?)"],
    ),
    (nfs(path="exports"), ["storageOptions.path: 'exports' cannot be used: it is no absolute "]),
    (
        nfs(path="/exports/training "),
        ["storageOptions.path: '/exports/training ' cannot be used: it"],
    ),
    (
        nfs(path="/exports/a\nb"),
        ["control character in it. Set the folder that the server exports"],
    ),
    (nfs(server="nas:/x"), ["storageOptions.server: 'nas:/x' cannot be used: it is no name or "]),
    (
        nfs(mountOptions="nfsvers=4.1,soft"),
        ["storageOptions.mountOptions: 'nfsvers=4.1,soft' cannot be used: 'soft' lets writes fail"],
    ),
    (
        nfs(mountOptions="hard, ro"),
        [
            "storageOptions.mountOptions: 'hard, ro' cannot be used: 'ro' lets nobody write",
            "Remove it",
        ],
    ),
    (
        SSH | {"storage": "nfs-first-node", "storageOptions": {"mountOptions": "softerr"}},
        ["storageOptions.mountOptions: 'softerr' cannot be used: 'softerr' lets writes fail"],
    ),
    (
        CLASS | {"storageOptions": {"className": "efs-sc", "accessMode": "RWX"}},
        ["storageOptions.accessMode: 'RWX' cannot be used: ", "Set ReadWriteMany, ReadWriteOnce"],
    ),
    (CLASS | {"storageOptions": {"className": "EFS x"}}, ["`kubectl get storageclass` lists"]),
    (CLAIM | {"storageOptions": {"claimName": "My Claim"}}, ["storageOptions.claimName: 'My "]),
    (
        REGISTRY | {"imageDeliveryOptions": {"user": "ci"}},
        ["imageDeliveryOptions.password: '' cannot be used: a login is a user and a password"],
    ),
    (
        REGISTRY | {"imageDeliveryOptions": {"compression": "zstd"}},
        ["imageDeliveryOptions.compression: [secret] cannot be used: ", "Set gzip or none"],
    ),
    (
        {"imageDeliveryOptions": {"keepUnusedMinutes": -1}},
        ["imageDeliveryOptions.keepUnusedMinutes: -1 cannot be used: "],
    ),
    (
        {"imageDelivery": "mirror", "imageDeliveryOptions": {"pullTimeoutSeconds": 1}},
        ["imageDeliveryOptions.pullTimeoutSeconds: 1 cannot be used: "],
    ),
    (
        VOLCANO | {"topologyOptions": {"restarts": -3}},
        ["topologyOptions.restarts: -3 cannot be used: it is too small. Set 0"],
    ),
    (VOLCANO | {"topologyOptions": {"queue": ""}}, ["topologyOptions.queue: '' cannot be used: "]),
    (
        VOLCANO | {"topologyOptions": {"queue": "Team_A"}},
        ["topologyOptions.queue: 'Team_A' cannot be used: it is not the name of a queue, and"],
    ),
    (
        MPI | {"topologyOptions": {"launcherRetries": -1}},
        ["topologyOptions.launcherRetries: -1 cannot be used: it is too small. Set 0"],
    ),
    # a queue
    (
        {"queues": {"name": "gpus", "quota": {"gpu": 8}}},
        ["queues.quota.gpu: 8 cannot be used: ", "Write it like cpu, memory or nvidia.com/gpu"],
    ),
    # controllers
    (
        {"controllers": [{"name": "kueue"}]},
        ["controllers[0]: {name: 'kueue'} cannot be used: it is not a name. Set one of jobset"],
    ),
    # programs
    (
        {"program": {"command": "python train.py --lr 0.1"}},
        [
            "program.command: 'python train.py --lr 0.1' cannot be used: it is one text, and no "
            "shell would divide it into words. Write it as a list: [python, train.py, --lr, '0.1']"
        ],
    ),
    ({"program": {"comand": ["python"]}}, ["program.comand: ['python'] cannot be used: there is "]),
    (
        {"program": {"command": ["python"], "args": ["--x"]}},
        ["program.args: ['--x'] cannot be used: ", "Write them behind the program in program.comm"],
    ),
    (
        {"program": {"command": ["python"], "env": {"A": "1"}}},
        ["program.env: {A: '1'} cannot be used: ", "Set them by podEnvironment"],
    ),
    (
        {"program": {"command": ["python"], "folder": "x"}},
        ["The keys here are command, per, image, build, files, progress, progress_file"],
    ),
]


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Any) -> str:
    """Return the path of a kubeconfig for a cluster that exists."""
    return str(files_of_this_machine("sandbox", tmp_path)["kubeconfig"])


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words[-1] for _, words in WRONG])
def test_wrong_setting_says_what_to_do(
    changes: dict[str, Any], words: list[str], kubeconfig: str
) -> None:
    """A wrong setting gets one line with its key, its value, the reason and what to do."""
    if changes.get("cluster") == "existing":
        changes = {**changes, "kubeconfig": kubeconfig}
    text = refusal(changes)
    for part in words:
        assert part in text, text
    assert [line for line in text.splitlines()[1:] if not FORM.match(line)] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"storage": "lustre", "storageOptions": {"server": "nas.lan", "path": "/x"}},
        {"storage": "nfs", "storageOptions": "server=nas.lan"},
        {
            "topology": "job-set",
            "topologyOptions": {"restarts": 3},
            "queue": "gpus",
            "pods": 9,
            "run": {"train": {"nodes_min": 1}},
            "ttlSecondsAfterFinished": "600",
        },
        {"program": {"command": []}},
        {"network": "roce", "networkOptions": {"devices": 4}},
    ],
    ids=str,
)
def test_one_fault_is_one_problem(changes: dict[str, Any]) -> None:
    """One mistake gives one message. What only follows from it would send the user elsewhere."""
    assert len(refusal(changes).splitlines()) == 2, refusal(changes)


def test_wrong_topology_hides_no_other_problem() -> None:
    """Beside a wrong topology, mistakes in other settings are named too."""
    text = refusal({"topology": "ring", "ttlSecondsAfterFinished": "1h", "whenBusy": "never"})
    for key in ("topology", "ttlSecondsAfterFinished", "whenBusy"):
        assert re.search(rf"^  - {key}: ", text, re.MULTILINE), text


def test_several_pods_are_several_pods_by_default() -> None:
    """With `topology: auto`, a number of pods is used: several pods are an indexed Job."""
    settings = read({"pods": 2, "gpus": 6}).run
    assert settings
    assert (settings.compute.topology.name, settings.compute.world.pods) == ("indexed-job", 2)
    alone = read({"pods": 1}).run
    assert alone
    assert alone.compute.topology.name == "single-pod"


SHAPES = ("[1]", "[null]", "[[]]", "[{}]", '[{"name": 1}]', '{"a": null}', '{"a": [1]}', "text")
OBJECTS = [
    key for key, entry in PROJECT_FILE["config"].items() if entry["type"] in ("object", "array")
]


@pytest.mark.parametrize("key", OBJECTS)
def test_no_shape_of_a_value_ends_in_a_traceback(key: str) -> None:
    """A list or an object with anything in it is accepted or refused, but ends in no traceback.
    Pulumi's engine only checks that it is a list or an object.
    """
    for shape in SHAPES:
        with suppress(pulumi.RunError):
            read({key: shape})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contexts": [{"name": "c", "context": None}]}, "its context 'c' names no cluster"),
        ({"contexts": ["c"]}, "its contexts are not a list of objects"),
        ({"contexts": {"name": "c"}}, "its contexts are not a list of objects"),
        ({"clusters": [{"name": "c", "cluster": "c"}]}, "its context 'c' leads to no server"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://[::1"}}]},
            "its context 'c' leads to no server",
        ),
    ],
)
def test_kubeconfig_of_another_form_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """A kubeconfig of another form, as one that was written by hand, is refused with the reason and
    not with a traceback.
    """
    file = Path(str(files_of_this_machine("sandbox", tmp_path)["kubeconfig"]))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    text = refusal({"cluster": "existing", "kubeconfig": str(file)})
    assert f"kubeconfig: '{file}' cannot be used: {said}. Set " in text


@pytest.mark.parametrize(
    ("section", "content", "key"),
    [
        ("cluster", {"certificate-authority": "pki/ca.crt"}, "certificate-authority"),
        ("user", {"client-certificate": "me.crt", "client-key": "/k"}, "client-certificate"),
        ("user", {"client-key": "../me.key", "client-certificate": "/c"}, "client-key"),
        ("user", {"tokenFile": "token"}, "tokenFile"),
        ("user", {"exec": {"command": "./login"}}, "exec.command"),
    ],
)
def test_paths_from_the_folder_of_a_kubeconfig_are_refused(
    section: str, content: dict[str, Any], key: str, tmp_path: Path
) -> None:
    """`kubectl config` writes paths from the folder of the kubeconfig. Pulumi's Kubernetes provider
    would take them from the project's folder, and find the cluster unreachable in the middle of
    `up`.
    """
    file = Path(str(files_of_this_machine("sandbox", tmp_path)["kubeconfig"]))
    _with_section(file, section, content)
    text = refusal({"cluster": "existing", "kubeconfig": str(file)})
    assert f"kubeconfig: '{file}' cannot be used: its {key} is " in text
    assert "kubectl config view --raw --flatten" in text


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("cluster", {"certificate-authority": "ca.crt", "certificate-authority-data": "AA=="}),
        ("cluster", {"certificate-authority": "/etc/pki/ca.crt"}),
        ("user", {"exec": {"command": "aws"}}),
        ("user", {"client-key-data": "AA==", "client-certificate-data": "AA=="}),
    ],
)
def test_kubeconfig_without_such_paths_is_accepted(
    section: str, content: dict[str, Any], tmp_path: Path
) -> None:
    """Contents, whole paths and the names of programs mean the same everywhere. In the project's
    folder, paths from the kubeconfig's folder do so too.
    """
    file = Path(str(files_of_this_machine("sandbox", tmp_path)["kubeconfig"]))
    _with_section(file, section, content)
    check_paths(file, "", tmp_path / "project")
    _with_section(file, "user", {"tokenFile": "token"})
    check_paths(file, "", file.parent)


def test_several_kubeconfigs_are_refused_with_the_way_to_one() -> None:
    """The value of KUBECONFIG may name several files. The provider reads one, so the message says
    how they become one.
    """
    text = refusal({"cluster": "existing", "kubeconfig": "/home/me/.kube/config:/home/me/other"})
    assert "'/home/me/.kube/config:/home/me/other' cannot be used: it names several files" in text
    assert "kubectl config view --raw --flatten >FILE" in text


def _with_section(file: Path, section: str, content: dict[str, Any]) -> None:
    """Add this content to the cluster or to the user of a kubeconfig."""
    plain = yaml.safe_load(file.read_text())
    inside = plain["clusters"][0]["cluster"] if section == "cluster" else {}
    entry = {"name": "c" if section == "cluster" else "u", section: {**inside, **content}}
    file.write_text(yaml.safe_dump({**plain, f"{section}s": [entry]}))
