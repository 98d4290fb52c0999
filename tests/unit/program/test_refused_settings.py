"""Settings that the program refuses before it registers anything."""

from pathlib import Path

import pulumi
import pytest

from tests.unit.stacks import deploy


def test_wrong_settings_register_nothing(tmp_path: Path) -> None:
    """Wrong settings are refused together, before anything is registered (`deploy` checks it)."""
    with pytest.raises(pulumi.RunError) as failure:
        deploy("dev", tmp_path, {"gpus": 0, "dataRoot": "/var/lib/rancher/data"})
    assert "gpus: '0'" in str(failure.value)
    assert "dataRoot: '/var/lib/rancher/data'" in str(failure.value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("podEnvironment", {"RANK": "0"}, "the entrypoint sets it"),
        ("podEnvironment", {"PET_NNODES": "2"}, "entrypoint set the variables that begin so"),
        ("podEnvironment", {"HTTP_PROXY": "http://x"}, "Use httpProxy, httpsProxy and noProxy"),
        ("podEnvironment", {"9x": "1"}, "is not the name of a variable"),
        ("podEnvironment", {"A": {"b": 1}}, "not a single text"),
        ("podEnvironment", {"JOB_COMPLETION_INDEX": "0"}, "the pods tell their ranks by it"),
        ("podEnvironment", {"LOCAL_WORLD_SIZE": "1"}, "the entrypoint sets it"),
        ("podEnvironment", {"CUDA_VISIBLE_DEVICES": "0"}, "its local rank's number"),
        ("podEnvironment", {"NVIDIA_VISIBLE_DEVICES": "all"}, "the GPUs that the pod was given"),
        ("podEnvironment", {"PATH": "/opt"}, "the image's programs are found by it"),
        ("podEnvironment", {"ALL_PROXY": "http://x"}, "Use httpProxy, httpsProxy and noProxy"),
        ("podEnvironment", {"SSL_CERT_FILE": "/x"}, "Use caBundle"),
        ("podLabels", {"app.kubernetes.io/name": "x"}, "finds its pods by the labels"),
        ("cpuPerRank", "half", "not auto or a whole number of CPUs"),
        ("memoryPerRank", "8 GB", "not auto or a size in Ki, Mi, Gi or Ti"),
        ("podLabels", {"team": "a b"}, "no such value of a label"),
        ("podLabels", {"-team": "a"}, "takes no key '-team'"),
        ("nodeSelector", {"gpu/model/a": "a10"}, "takes no key"),
        ("nodeSelector", {"gpu": "a10,h100"}, "no such value of a label"),
        ("podAnnotations", {"a b": "any text"}, "takes no key 'a b'"),
        ("tolerations", ["x"], "it is not an object"),
        ("tolerations", [{"keys": "x"}], "a toleration has no key 'keys'"),
        ("tolerations", [{"value": "x"}], "without a key the operator must be Exists"),
        ("tolerations", [{"key": "a", "operator": "In"}], "neither Equal nor Exists"),
        ("tolerations", [{"key": "a", "operator": "Exists", "value": "b"}], "takes no value"),
        ("tolerations", [{"key": 5, "operator": "Exists"}], "5 cannot be the key of a taint; put"),
        ("tolerations", [{"key": True, "operator": "Exists"}], "true cannot be the key of a taint"),
        ("tolerations", [{"key": None, "operator": "Exists"}], "null cannot be the key of a taint"),
        ("tolerations", [{"key": "a", "value": 1}], "put numbers in quotation marks"),
        ("tolerations", [{"key": "a", "value": "b", "effect": "Never"}], "is none of NoSchedule"),
        (
            "tolerations",
            [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
            "goes with the effect NoExecute",
        ),
        ("memoryLimitPerRank", "8 GB", "not a size in Ki, Mi, Gi or Ti; empty: no limit"),
        ("memoryLimitPerRank", "2Gi", "memoryPerRank requests 4Gi"),
        ("cpuLimitPerRank", "500m", "Set at least 1, or lower cpuPerRank"),
        ("networkOptions", {"interface": "ens5"}, "has no options"),
        ("extensions", ["no.such.module"], "cannot be imported"),
        ("whenBusy", "kill", "Set replace, wait or refuse"),
        ("verify", "always", "Set never, before or after"),
    ],
)
def test_setting_that_would_break_the_run_is_refused(
    key: str, value: object, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(pulumi.RunError) as failure:
        deploy("dev", tmp_path, {key: value})
    assert key in str(failure.value)
    assert reason in str(failure.value)
