"""A misspelt key or choice inside a list or an object gets the most similar one as a suggestion."""

from typing import Any

import pytest

from tests.unit.settings.reading import SSH, refusal

NODE = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA"}
MACHINES = {**SSH, "cluster": "k3s", "nodeAddress": "10.1.2.3"}
TAINT = {"key": "team", "operator": "Exists"}


@pytest.mark.parametrize(
    ("changes", "key", "meant"),
    [
        ({**MACHINES, "nodes": [{**NODE, "hostKey": "a"}]}, "nodes[0].hostKey", "host_key"),
        ({**MACHINES, "nodes": [{**NODE, "adress": "a"}]}, "nodes[0].adress", "address"),
        ({**MACHINES, "nodes": [{**NODE, "role": "Server"}]}, "nodes[0].role", "server"),
        ({"queues": {"nmae": "gpus"}}, "queues.nmae", "name"),
        ({"queues": {"name": "gpus", "Priority": {}}}, "queues.Priority", "priorities"),
        ({"datasetOptions": {"textField": "a"}}, "datasetOptions.textField", "text_field"),
        ({"tolerations": [{**TAINT, "efect": "NoExecute"}]}, "tolerations", "effect"),
        ({"tolerations": [{**TAINT, "operator": "exist"}]}, "tolerations", "Exists"),
        ({"tolerations": [{**TAINT, "effect": "noschedule"}]}, "tolerations", "NoSchedule"),
        ({"controllers": ["JobSet"]}, "controllers[0]", "jobset"),
        ({"controllerCharts": {"jobsets": "/a"}}, "controllerCharts.jobsets", "jobset"),
        ({"controllerManifests": {"vulcano": "/a"}}, "controllerManifests.vulcano", "volcano"),
        ({"PODENVIRONMENT": {"A": "b"}}, "PODENVIRONMENT", "podEnvironment"),
    ],
)
def test_misspelt_key_gets_the_nearest_one(changes: dict[str, Any], key: str, meant: str) -> None:
    """Keys and choices inside a setting get a suggestion, as the names of settings do."""
    lines = refusal(changes).splitlines()
    assert any(
        line.startswith(f"  - {key}: ") and f"(did you mean {meant}?)" in line for line in lines
    ), lines


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("run.train.max_steps", "run.train.max_steps"),
        ("podEnvironment.NCCL_DEBUG", "podEnvironment.NCCL_DEBUG"),
        ("nodes[0].name", "nodes[0].name"),
        ("max_steps", "run.train.max_steps"),
        ("train", "run.train"),
        ("seed", "run.seed"),
    ],
)
def test_value_set_without_its_path_is_explained(key: str, path: str) -> None:
    """`pulumi config set run.train.max_steps 5` without `--path` makes a key with points in it,
    which nothing reads. The message says how to set it inside `run`.
    """
    (line,) = [line for line in refusal({key: 5}).splitlines() if line.startswith("  - ")]
    setting = path.partition(".")[0].removesuffix("[0]")
    assert line.startswith(f"  - {key}: ")
    assert line.endswith(
        f" cannot be used: it is a value inside the setting {setting}, and "
        f"no setting of its own. Set it by `pulumi config set --path '{path}' VALUE`, and remove "
        f"this one: `pulumi config rm '{key}'`."
    )


def test_settings_below_the_project_are_explained() -> None:
    """Settings that are indented below `disttrain:` get a message that says how to write them."""
    (line,) = [line for line in refusal({"disttrain": {"gpus": 2}}).splitlines() if "  - " in line]
    assert line == (
        "  - disttrain: {gpus: 2} cannot be used: Pulumi reads no settings that are indented below "
        "it. Write each as a key of its own below config, such as disttrain:gpus."
    )


@pytest.mark.parametrize(
    "key",
    [
        *("podSecrets.TOKEN", "imageDeliveryOptions.password", "nodes[0].sudo_password"),
        *("imageDeliveryOption.password", "node[0].private_key", "k3sRegistries.configs"),
    ],
)
def test_secret_without_its_path_stays_hidden(key: str) -> None:
    """The value is not shown if the setting in front of the path may hold a secret."""
    said = refusal({key: "hunter2"})
    assert f"{key}: [secret] cannot be used: " in said
    assert "hunter2" not in said


@pytest.mark.parametrize("key", ["SUDOPASSWORD", "Sudo_Password"])
def test_secret_of_a_misspelt_key_stays_hidden(key: str) -> None:
    """The value is not shown if the key in other letters may hold a secret."""
    said = refusal({key: "hunter2"})
    assert f"{key}: [secret] cannot be used: there is no such key (did you mean sudoPassword?)" in (
        said
    )
    assert "hunter2" not in said
