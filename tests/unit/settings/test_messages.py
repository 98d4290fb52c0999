"""The messages of the settings name the key, the value, why it cannot be used, and what to do."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.kinds import KINDS
from infra.networks.profile import NetworkProfile
from infra.settings import parse_settings
from tests.unit.certificates import AUTHORITY
from tests.unit.settings.form import FORM
from tests.unit.settings.reading import PROXY, SSH, read, refusal
from tests.unit.stacks import raw_settings

ONE_RANK = {"gpusPerPod": 1}
WRONG: list[tuple[dict[str, Any], str]] = [
    # unknown keys
    (
        {"topolgy": "multi-pod"},
        "topolgy: 'multi-pod' cannot be used: there is no such key (did you mean topology?)",
    ),
    ({"colour": "red"}, "`pulumi config rm colour` removes this one"),
    # wrong types
    ({"gpus": "three"}, "gpus: 'three' cannot be used: it is not a whole number. Set a whole"),
    ({"gpus": 1.5}, "gpus: '1.5' cannot be used: it is not a whole number"),
    ({"gpus": True}, "gpus: 'true' cannot be used"),
    (
        {"k3sForce": "maybe"},
        "k3sForce: 'maybe' cannot be used: it is neither true nor false. Set true or false.",
    ),
    ({"run": "fast"}, "run: 'fast' cannot be used: it is a single value and must be a mapping"),
    ({"tolerations": "all"}, "tolerations: 'all' cannot be used: it is a single value and must"),
    ({"run": {"train": {"max_steps": "many"}}}, "run.train.max_steps: 'many' "),
    # limits and choices
    ({"gpus": 0}, "gpus: '0' cannot be used: it is too small. Set a whole number of at least 1."),
    ({"gpus": "9" * 19}, f"gpus: '{'9' * 19}' cannot be used: it is too large"),
    ({"gpus": "-" + "9" * 19}, f"gpus: '-{'9' * 19}' cannot be used: it is too small"),
    ({"gpus": -1}, "gpus: '-1' cannot be used: it is too small"),
    ({"pods": -1}, "pods: '-1' cannot be used"),
    (
        {"sshPort": 70000},
        "sshPort: '70000' cannot be used: it is too large. Set a whole number of at least 1 and "
        "at most 65535.",
    ),
    ({"topology": "multipod"}, "mpijob, volcano, lws, none or auto (did you mean multi-pod?)"),
    ({"topology": "LeaderWorkerSet"}, "volcano, lws, none or auto (did you mean lws?)"),
    ({"topology": "StatefulSet"}, "volcano, lws, none or auto (did you mean multi-pod?)"),
    ({"topology": "Job"}, "volcano, lws, none or auto (did you mean single-pod?)"),
    ({"accelerator": "tpu"}, "accelerator: 'tpu' cannot be used: accelerator has no such choice"),
    ({"imageBuilder": "kaniko"}, "Set auto, docker, podman or buildah."),
    ({"namespace": "Dist_Train"}, "namespace: 'Dist_Train' cannot be used: it is not a name of"),
    (
        {"namespace": "kube-system"},
        "namespace: 'kube-system' cannot be used: it is one of the cluster's own",
    ),
    ({"dataSize": "50 GB"}, "dataSize: '50 GB' cannot be used: it is not a size in Ki, Mi, Gi"),
    ({"runName": "../x"}, "runName: '../x' cannot be used"),
    ({"podCidr": "10.42"}, "podCidr: '10.42' cannot be used: it is not a network. Write it like"),
    ({"podCidr": "10.43.1.0/24"}, "it overlaps with serviceCidr 10.43.0.0/16"),
    (
        {"podCidr": "fd00:42::/56"},
        "podCidr: 'fd00:42::/56' cannot be used: serviceCidr 10.43.0.0/16 is of IPv4, and k3s "
        "takes no networks of two kinds",
    ),
    ({"k3sVersion": "1.34.2"}, "it is not a release of k3s. Write it like v1.34.2+k3s1."),
    ({"k3sSha256": "abc"}, "k3sSha256: 'abc' cannot be used: it is not a sha256 checksum"),
    # monitoring
    ({"monitoring": "bring"}, "monitoring: 'bring' cannot be used: monitoring has no such"),
    (
        {"monitoring": "existing", "alertWebhook": "https://hooks.example.org/hunter2"},
        "alertWebhook: [secret] cannot be used: it holds a secret in plain text. Encrypt it",
    ),
    (
        {"monitoringStorageGib": 20, "monitoringStorageClass": "fast"},
        "monitoringStorageGib: 20 cannot be used: monitoring is 'none', so this platform brings "
        "no Prometheus to have it. Set monitoring to install, or remove this value",
    ),
    (
        {"monitoring": "existing", "monitoringStorageClass": "fast"},
        "monitoringStorageClass: 'fast' cannot be used: monitoring is 'existing', so this platform",
    ),
    (
        {"monitoring": "install", "monitoringStorageClass": "fast"},
        "monitoringStorageGib: 0 cannot be used: monitoringStorageClass is set, and a claim "
        "needs a size. Set a number of GiB, such as 20, or remove monitoringStorageClass",
    ),
    (
        {"monitoring": "install", "monitoringStorageGib": 20},
        "monitoringStorageClass: '' cannot be used: monitoringStorageGib is set, and a claim needs "
        "a class. Set one that `kubectl get storageclass` lists, or remove monitoringStorageGib",
    ),
    (
        {"monitoring": "install", "monitoringStorageGib": 20, "monitoringStorageClass": "My Disk"},
        "monitoringStorageClass: 'My Disk' cannot be used: it is not the name of a storage class",
    ),
    ({"alertWebhook": "hooks"}, "it is not an http(s) address. Write it like https://host/path"),
    (
        {"alertWebhook": "https://hooks.example.org/hunter2"},
        "alertWebhook: [secret] cannot be used: without Prometheus nothing warns of anything",
    ),
    (
        {
            "monitoring": "install",
            "alertWebhook": "https://hooks.example.org/hunter2",
            "httpsProxy": "http://me:hunter2@proxy.example.org:3128",
        },
        "alertWebhook: [secret] cannot be used: it is reached through httpsProxy, and "
        "Alertmanager would store its password in plain text",
    ),
    (
        {"topology": "single-pod", "pods": 3},
        "pods: 3 cannot be used: topology: single-pod has one pod. Remove it, or set a topology of "
        "several pods, such as indexed-job.",
    ),
    ({"metricsPort": 80}, "metricsPort: 80 cannot be used: the pods do not run as root"),
    ({"metricsPort": 29516}, "metricsPort: 29516 cannot be used: the pods meet at the ports 29500"),
    # queue
    (
        {"topology": "multi-pod", "queue": "team"},
        "queue: 'team' cannot be used: topology is multi-pod, whose object has no field to suspend "
        "it, so that Kueue could not hold it back before it has its quota. Set topology to one of "
        "single-pod, indexed-job, jobset, trainjob, pytorchjob, mpijob, or remove queue.",
    ),
    (
        {"topology": "lws", "queue": "team"},
        "queue: 'team' cannot be used: topology is lws, whose object has no field to suspend it, ",
    ),
    (
        {"topology": "volcano", "queue": "team"},
        "could not hold it back before it has its quota. Name a queue of its own by "
        "topologyOptions.queue, or set topology to one of single-pod,",
    ),
    (
        {"queue": "team", "whenBusy": "refuse"},
        "queue: 'team' cannot be used: whenBusy is refuse, and a run in a queue waits for its turn",
    ),
    ({"queuePriority": "urgent"}, "queuePriority: 'urgent' cannot be used: the run is in no"),
    (
        {"queues": {"quota": {"cpu": 4}}},
        "queues.name: '' cannot be used: it is not the name of a LocalQueue. Write it like gpus",
    ),
    ({"queues": {"name": "a" * 60}}, "its ClusterQueue would be called disttrain-aaa"),
    ({"queues": {"name": "gpus", "nme": 1}}, "queues.nme: 1 cannot be used: there is no such key"),
    ({"queues": {"name": "gpus", "quota": 4}}, "queues.quota: 4 cannot be used: it is not an obj"),
    (
        {"queues": {"name": "gpus", "quota": {"memory": "64 GB"}}},
        "queues.quota.memory: '64 GB' cannot be used: it is not an amount. Write it like 64, 500m",
    ),
    ({"queues": {"name": "gpus", "quota": {"cpu": "0"}}}, "no run could ever start. Set more"),
    ({"queues": {"name": "gpus", "quota": {"a b": 1}}}, "it is not the name of a resource"),
    (
        {"queues": {"name": "gpus", "quota": {"nvidia.com/gpu": "1.5"}}},
        "queues.quota.nvidia.com/gpu: '1.5' cannot be used: it is not a whole number",
    ),
    (
        {"queues": {"name": "gpus", "priorities": {"urgent": "high"}}},
        "queues.priorities.urgent: 'high' cannot be used: it is not a whole number of 32 bits",
    ),
    ({"queues": {"name": "gpus", "priorities": {"A": 1}}}, "it is not the name of a WorkloadPrio"),
    ({"queue": "Team A"}, "queue: 'Team A' cannot be used: it is not the name of a LocalQueue"),
    # world size
    ({"gpusPerPod": 4}, "gpusPerPod: 4 cannot be used: the platform has 3 GPUs (gpus)"),
    ({"topology": "multi-pod", "gpusPerPod": 2}, "Lower pods * gpusPerPod to at most 3"),
    ({"processesPerPod": 2}, "processesPerPod: 2 cannot be used: with accelerator: gpu each pod"),
    # the data root
    *(
        ({"dataRoot": path}, f"dataRoot: '{path}' cannot be used: k3s' uninstaller")
        for path in (
            *("/var/lib/rancher", "/var/lib/rancher/k3s/storage", "/var/lib/kubelet/x"),
            *("/etc/rancher/data", "/run/k3s/data", "/var/lib", "/var"),
        )
    ),
    ({"dataRoot": "/data/../x"}, "dataRoot: '/data/../x' cannot be used: it has .. in it. Set the"),
    ({"dataRoot": "data"}, "dataRoot: 'data' cannot be used: it is not an absolute path"),
    ({"dataRoot": "/"}, "dataRoot: '/' cannot be used: it is not an absolute path"),
    # the proxy
    ({"httpProxy": "proxy:3128"}, "httpProxy: 'proxy:3128' cannot be used: it is not the address"),
    ({"httpProxy": "http://u:p@proxy"}, "httpProxy: [secret] cannot be used: it holds a secret"),
    # Go's net/url refuses these signs. With '"', k3s' service would lose its other variables too.
    *(
        ({"httpProxy": f"http://me:{word}@proxy"}, "httpProxy: [secret] cannot be used: its")
        for word in ('hun"ter', "hun\\ter", "hun^ter", "100%", "hünter")
    ),
    ({"httpProxy": "http://[proxy"}, "httpProxy: 'http://[proxy' cannot be used"),
    (PROXY | {"nodeAddress": ""}, "nodeAddress: '' cannot be used: a proxy is set"),
    (
        PROXY | {"noProxyOverride": ".svc,localhost,10.1.2.3,10.42.0.0/16"},
        "a proxy is missing: 10.43.0.0/16,.cluster.local,127.0.0.1",
    ),
    ({"proxyScope": "pods"}, "proxyScope: 'pods' cannot be used"),
    ({"caBundle": "/nowhere/ca.pem"}, "caBundle: '/nowhere/ca.pem' cannot be used: it cannot be"),
    ({"caBundle": "/etc/hostname"}, "caBundle: '/etc/hostname' cannot be used: it holds no"),
    # the host
    ({"host": "ssh"}, "sshHost: '' cannot be used: host: ssh needs to know which machine"),
    ({"sshHost": "gpu01"}, "sshHost: 'gpu01' cannot be used: with host: local everything is done"),
    (SSH | {"sshHostKey": ""}, "sshHostKey: '' cannot be used: without it another machine"),
    ({"sudoPassword": "x"}, "Encrypt it: `pulumi config set --secret sudoPassword`"),
    (SSH | {"sshJumpHost": "gate"}, "sshJumpHostKey: '' cannot be used: without it another"),
    ({"doctor": "off"}, "doctor: 'off' cannot be used: doctor has no such choice. Set error, warn"),
    # k3s
    ({"k3sMirror": "http://mirror"}, "Set an https address, or both k3sSha256 and"),
    ({"k3sMirror": "https://u:p@mirror"}, "it is not an http(s) address without user and password"),
    ({"k3sExisting": "keep"}, "k3sExisting: 'keep' cannot be used: k3sExisting has no such choice"),
    (
        {"k3sRegistries": {"configs": {"r": {"auth": {"password": "x"}}}}},
        "k3sRegistries: [secret] cannot be used: it holds a secret in plain text",
    ),
    ({"clusterAccess": "tunnel"}, "clusterAccess: 'tunnel' cannot be used: a tunnel leads to k3s"),
    (
        {"clusterGrows": True},
        "clusterGrows: 'true' cannot be used: k3s only has the machines of this stack",
    ),
    (
        {"lostNodes": "replace"},
        "lostNodes: 'replace' cannot be used: this stack has one machine, and no other one could",
    ),
    # the data, on destroy
    ({"dataOnDestroy": "purge"}, "purgeConfirmed: '' cannot be used: dataOnDestroy: purge would"),
    (
        {"dataOnDestroy": "purge", "purgeConfirmed": "/data"},
        "purgeConfirmed: '/data' cannot be used",
    ),
    # the cluster
    ({"cluster": "existing"}, "kubeconfig: '' cannot be used: cluster: existing is reached by"),
    (
        {"cluster": "existing", "kubeconfig": "/nowhere/kubeconfig"},
        "kubeconfig: '/nowhere/kubeconfig' cannot be used: it cannot be read",
    ),
    (
        {"kubeContext": "prod"},
        "kubeContext: 'prod' cannot be used: with cluster: k3s the",
    ),
    # the GPU Operator
    (
        {"gpuOperatorVersion": "v25.10.0"},
        "gpuOperatorVersion: 'v25.10.0' cannot be used: its toolkit 1.18.0 overwrites the imports "
        "of containerd's configuration. Set another release",
    ),
    ({"gpuOperatorVersion": "v24.9.0"}, "cannot be used: its toolkit 1.17.0 does not find"),
    ({"gpuOperatorVersion": "v23.9.2"}, "cannot be used: charts before v24.9.1 do not know"),
    ({"gpuOperatorVersion": "latest"}, "gpuOperatorVersion: 'latest' cannot be used"),
    ({"gpuOperatorRegime": "legacy"}, "gpuOperatorRegime: 'legacy' cannot be used: charts from"),
    (
        {"k3sVersion": "v1.30.9+k3s1"},
        "k3sVersion: 'v1.30.9+k3s1' cannot be used: the containerd of this k3s is older than 2.0",
    ),
    (
        {"k3sVersion": "v1.30.9+k3s1", "gpuOperatorRegime": "cdi"},
        "gpuOperatorRegime: 'cdi' cannot be used: the containerd of this k3s is older than 2.0",
    ),
    (
        {"gpuOperatorDriver": True, "gpuOperatorToolkit": False},
        "gpuOperatorDriver: 'true' cannot be used: the host's container toolkit "
        "(gpuOperatorToolkit: false) needs the host's driver. Set gpuOperatorDriver: false.",
    ),
    ({"gpuTimeSlices": 4}, "the platform offers each GPU several times, and two nccl ranks"),
    (
        ONE_RANK | {"migProfile": "1g.10gb"},
        "migProfile: '1g.10gb' cannot be used: the A10 (gpuModel) has no MIG. Remove migProfile, "
        "or set gpuModel to the model that the node has.",
    ),
    (
        ONE_RANK | {"migProfile": "1g.5gb", "gpuModel": "H100-80GB"},
        "the H100-80GB (gpuModel) has no such profile. Set one of 1g.10gb, 1g.20gb",
    ),
    (
        ONE_RANK | {"migProfile": "1g.10gb", "gpuModel": "GTX"},
        "gpuModel: 'GTX' cannot be used: which profiles of MIG this model has is not known",
    ),
    # the image
    ({"imageRepository": "trainer"}, "imageRepository: 'trainer' "),
    ({"imageBase": ""}, "imageBase: '' cannot be used: it is not the name of an image"),
    ({"imageBuildOn": "there"}, "imageBuildOn: 'there' cannot be used"),
    ({"imageBuildOn": "node"}, "building at the node takes host: ssh and cluster: k3s. Set here."),
    # the data set
    ({"datasetUrl": "https://x/y"}, "datasetSha256: '' cannot be used: without it nobody"),
    ({"datasetUrl": "y", "datasetSha256": "0" * 64}, "datasetUrl: 'y' cannot be used: it is not"),
    ({"datasetFile": "/nowhere/text"}, "datasetFile: '/nowhere/text' cannot be used: it cannot be"),
    ({"datasetTokenizer": "words"}, "datasetTokenizer: 'words' "),
    # the run
    ({"preset": "gpt5"}, "preset: 'gpt5' cannot be used: there is no such file in trainer/presets"),
    ({"run": {"modell": {}}}, "run.modell: {} cannot be used: there is no such key"),
    ({"run": {"sed": 5}}, "The keys here are seed, model, train, eval, checkpoint, log."),
    (
        {"run": {"program": {"per": "node"}}},
        "run.program: {per: 'node'} cannot be used: it has a setting of its own. Use program",
    ),
    (
        {"run": {"model": {"n_layers": 2}}},
        "run.model.n_layers: 2 cannot be used: there is no such key (did you mean",
    ),
    (
        {"run": {"run_name": "x"}},
        "run.run_name: 'x' cannot be used: it has a setting of its own. Use runName instead.",
    ),
    (
        {"run": {"train": {"device": "cpu"}}},
        "run.train.device: 'cpu' cannot be used: accelerator is gpu. Set cuda",
    ),
    (
        {"run": {"train": 3}},
        "run.train: 3 cannot be used: it is not a mapping of keys. Its keys are max_steps",
    ),
    ({"run": {"train": {"nodes_min": -1}}}, "run.train.nodes_min: -1 cannot be used: "),
    (
        {"run": {"train": {"nodes_min": 1}}},
        "run.train.nodes_min: 1 cannot be used: topology: single-pod has one pod",
    ),
    (
        {"run": {"train": {"nodes_min": 4}}, "topology": "multi-pod"},
        "run.train.nodes_min: 4 cannot be used: the run has 3 pods (pods). Set at most 3, or 0",
    ),
    (
        {"run": {"train": {"transport_policy": "fail"}}},
        "run.train.transport_policy: 'fail' cannot be used: there is no such choice",
    ),
    (
        {
            "run": {"train": {"transport_policy": "stop"}},
            "podEnvironment": {"NCCL_DEBUG": "INFO"},
        },
        "run.train.transport_policy: 'stop' cannot be used: podEnvironment.NCCL_DEBUG makes NCCL "
        "print where its transport is not looked for. Remove podEnvironment.NCCL_DEBUG, or set "
        "warn",
    ),
    # training pods
    (
        {"cpuPerRank": "many"},
        "cpuPerRank: 'many' cannot be used: it is not auto or a whole number of CPUs",
    ),
    (
        {"podEnvironment": {"RANK": "1"}},
        "podEnvironment.RANK: '1' cannot be used: the entrypoint sets",
    ),
    ({"podEnvironment": {"PET_X": "1"}}, "podEnvironment.PET_X: '1' cannot be used: the program"),
    (
        {"podEnvironment": {"A": "b\0"}},
        "podEnvironment.A: 'b\\x00' cannot be used: it has a control character in it, such as NUL",
    ),
    ({"podEnvironment": {"https_proxy": "x"}}, "Use httpProxy, httpsProxy and noProxy instead"),
    ({"podUser": "0"}, "podUser: '0' cannot be used: it is too small. Set a whole number"),
    ({"podLabels": {"disttrain.dev/a": "b"}}, "podLabels.disttrain.dev/a: 'b' cannot be used"),
    (
        {"podLabels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        "would not be in that queue. Set it for the run: `pulumi config set queue gpus`, and",
    ),
    (
        {"podLabels": {"kueue.x-k8s.io/priority-class": "urgent"}},
        "`pulumi config set queuePriority urgent`",
    ),
    (
        {"podAnnotations": {"scheduling.volcano.sh/queue-name": "team"}},
        "`pulumi config set --path topologyOptions.queue team`",
    ),
    ({"tolerations": [{"keys": "x"}]}, "a toleration has no key 'keys'"),
    ({"tolerations": [{"key": 5, "operator": "Exists"}]}, "5 cannot be the key of a taint; put"),
    # kinds
    ({"storageOptions": {"server": "x"}}, "storageOptions.server: 'x' cannot be used: storage: "),
    ({"extensions": ["no_such_module"]}, "extensions: 'no_such_module' cannot be used"),
    ({"extensions": [""]}, "extensions: '' cannot be used: it is not the name of a Python module"),
    ({"extensions": [".kinds"]}, "extensions: '.kinds' cannot be used: it is not the name of"),
    ({"ctr": 'k3s "ctr'}, "ctr: 'k3s \"ctr' cannot be used: a quotation mark in it has no end. "),
    # the home of a user that does not exist
    ({"caBundle": "~nobody-here/ca.pem"}, "caBundle: '~nobody-here/ca.pem' cannot be used"),
    ({"bundle": "~nobody-here/bundle"}, "bundle: '~nobody-here/bundle' cannot be used"),
    ({"datasetFile": "~nobody-here/a.txt"}, "a.txt' cannot be used: it cannot be read (No such"),
    (
        {"gpuOperatorChart": "~nobody-here/chart.tgz"},
        "gpuOperatorChart: '~nobody-here/chart.tgz' cannot be used: no chart can be read there",
    ),
    (
        {"program": {"command": ["a"], "files": "~nobody-here/mine"}},
        "~nobody-here/mine' cannot be used: there is no file",
    ),
    (
        {"program": {"command": ["a"], "build": "~nobody-here/mine"}},
        "~nobody-here/mine' cannot be used: there is no file Dockerfile",
    ),
    (
        {"cluster": "existing", "kubeconfig": "~nobody-here/config"},
        "kubeconfig: '~nobody-here/config' cannot be used: it cannot be read",
    ),
    (
        {"controllers": ["kueue"], "controllerCharts": {"kueue": "~nobody-here/kueue.tgz"}},
        "controllerCharts.kueue: '~nobody-here/kueue.tgz' cannot be used",
    ),
]


# The trainer's own problems and those of the image's name do not have the form of `FORM`.
OTHER_WORDS = {"run", "datasetTokenizer", "imageRepository"}


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_setting_is_refused_in_these_words(changes: dict[str, Any], message: str) -> None:
    """An error names the key, the value, why it cannot be used, and what to do."""
    text = refusal(changes)
    assert message in text
    if not OTHER_WORDS & set(changes):
        assert [line for line in text.splitlines()[1:] if not FORM.match(line)] == []


def test_all_problems_are_shown_at_once() -> None:
    """All wrong settings are named in one error."""
    text = refusal({"gpus": 0, "colour": "red", "dataSize": "big", "topology": "ring"})
    for key in ("gpus", "colour", "dataSize", "topology"):
        assert re.search(rf"^  - {key}: ", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("changes", "secret_keys"),
    [
        ({"httpProxy": "http://me:hunter2@"}, ()),
        ({"httpsProxy": "ftp://me:hunter2@proxy"}, ()),
        ({"noSuchKey": "hunter2"}, ("noSuchKey",)),
        ({"podEnvironment": {"RANK": "hunter2"}}, ("podEnvironment",)),
        # What is meant to be secret is not shown, even if the user forgot to encrypt it.
        ({"podSecrets": {"STORE": {"password": "hunter2"}}}, ()),
        ({"podSecrets": {"STORE": ["hunter2"]}}, ()),
        ({"podSecrets": "hunter2"}, ()),
        ({"podSecrets": {"RANK": "hunter2"}}, ()),
        ({"podSecrets": {"STORE": "hunter2\0"}}, ("podSecrets",)),
        ({"k3sRegistries": "hunter2"}, ()),
        ({"torchIndexUrl": "ftp://me:hunter2@index"}, ()),
        ({"datasetUrl": "https://me:hunter2@host/text"}, ()),
    ],
    ids=str,
)
def test_no_message_shows_a_secret(changes: dict[str, Any], secret_keys: tuple[str, ...]) -> None:
    """No error shows a secret, even if the user forgot to encrypt it or set it under a wrong
    key.
    """
    assert "hunter2" not in refusal(changes, secret_keys)


@pytest.mark.parametrize("changes", [{"trainingTimeoutSeconds": 1}, {"bundle": "/no/such/folder"}])
def test_a_key_of_platform_and_run_is_named_once(changes: dict[str, Any]) -> None:
    """A wrong key that both platform and run read is named once."""
    assert len(refusal(changes).splitlines()) == 2


def test_a_wrong_number_of_gpus_is_the_only_problem_shown() -> None:
    assert len(refusal({"gpus": "three"}).splitlines()) == 2


def test_own_list_of_exceptions_is_taken_when_complete() -> None:
    """`noProxyOverride` is used as it is if it has all entries that the cluster needs."""
    required = "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"
    override = f"{required},.corp.example"
    assert read(PROXY | {"noProxyOverride": override}).own_platform.proxy.no_proxy == override


def test_rsa_host_key_is_refused_with_the_reason() -> None:
    """A host key of type `ssh-rsa` is refused with the command to get another one. Pulumi's command
    plugin cannot connect with it, because it would need SHA-1 signatures.
    """
    ssh = {"host": "ssh", "sshHost": "gpu01"}
    text = refusal({**ssh, "sshHostKey": "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB"})
    assert "sshHostKey: 'ssh-rsa" in text
    assert "SHA-1" in text
    assert "ssh-keyscan -t ed25519,ecdsa" in text


def test_single_choice_is_named_alone() -> None:
    """The error of a wrong choice names all choices, or the only one."""
    said = "network: 'nfs' cannot be used: network has no such choice. "
    assert f"{said}Set pod-tcp, multus, rdma or efa." in refusal({"network": "nfs"})
    kinds = replace(KINDS, networks={"pod-tcp": KINDS.networks["pod-tcp"]})
    with pytest.raises(pulumi.RunError, match=r"network has no such choice. Set pod-tcp\."):
        parse_settings(raw_settings("dev", {"network": "nfs"}), (), "dev", kinds)


def test_policy_stop_is_refused_for_a_network_that_asks_nothing() -> None:
    """`transport_policy: stop` is refused for a network that asks for no transport. No transport
    could be a wrong one, so the run would never be stopped.
    """
    kinds = replace(KINDS, networks={**KINDS.networks, "any": NetworkProfile(name="any")})
    changes = {"network": "any", "run": {"train": {"transport_policy": "stop"}}}
    raw = raw_settings("dev", changes)
    with pytest.raises(pulumi.RunError, match="network: any asks for no transport"):
        parse_settings(raw, (), "dev", kinds)
    changes["run"] = {"train": {"transport_policy": "warn"}}
    parse_settings(raw_settings("dev", changes), (), "dev", kinds)


def test_password_of_a_proxy_may_have_what_an_address_takes() -> None:
    """The password of a proxy may contain every sign that an address may contain."""
    password = "hun.t-e_r~!$&'()*+,;=:%22%C3%BC"
    given = PROXY | {"httpProxy": f"http://me:{password}@proxy:3128"}
    proxy = read(given, {"httpProxy"}).own_platform.proxy
    assert proxy.http is not None
    assert password in proxy.http.text


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("kinds_with_a_slip", "class:", "invalid syntax (kinds_with_a_slip.py, line 1)"),
        (
            "kinds_of_a_taken_name",
            "from dataclasses import replace\n"
            "from infra.networks import NETWORKS\n"
            "NETWORKS.register(replace(NETWORKS['pod-tcp']))",
            "network: there is a kind 'pod-tcp' already; give the new kind another name",
        ),
    ],
)
def test_what_keeps_an_extension_from_being_imported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str, reason: str
) -> None:
    """The error about an extension that cannot be imported contains the reason."""
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    said = refusal({"extensions": [module]})
    assert f"extensions: '{module}' cannot be used: it cannot be imported ({reason}" in said
    assert "Mend that in the module" in said


@pytest.mark.parametrize(
    "text", [AUTHORITY[:200], AUTHORITY + AUTHORITY[:200]], ids=["only one", "second one"]
)
def test_damaged_certificate_is_refused(text: str, tmp_path: Path) -> None:
    """A damaged certificate in `caBundle` is refused with a message that names the setting,
    wherever it is in the file. Otherwise `pulumi preview` would end with a traceback of Python's
    ssl.
    """
    file = tmp_path / "ca.pem"
    file.write_text(text)
    said = refusal({"caBundle": str(file)})
    assert f"caBundle: '{file}' cannot be used: a certificate in it is damaged" in said


def test_certificates_may_have_comments_in_any_letters(tmp_path: Path) -> None:
    """The comments in `caBundle` may have letters beyond ASCII, and the file is used as it is."""
    file = tmp_path / "ca.pem"
    file.write_text(f"# Autorité de l'entreprise\n{AUTHORITY}", encoding="utf-8")
    assert read({"caBundle": str(file)}).own_platform.proxy.ca_bundle == file.read_text()


@pytest.mark.parametrize("options", [{"user": "me", "password": "sekret"}, "{password: sekret}"])
def test_password_beside_a_delivery_that_takes_none_is_not_shown(options: Any) -> None:
    """`imageDeliveryOptions` are refused without showing a password if the delivery has no such
    options.
    """
    said = refusal({"imageDeliveryOptions": options})
    assert "imageDeliveryOptions" in said
    assert "sekret" not in said
