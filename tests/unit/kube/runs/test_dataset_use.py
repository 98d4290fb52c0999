"""A data set whose name another stack on the same volume uses for other data."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import cluster_check
from infra.dataset_check import ask_about_dataset
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import Need
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.runs import dataset_name
from infra.kube.runs.dataset_findings import OPTIONS, DatasetUse, dataset_findings
from infra.kube.volumes.storage_findings import StorageNeeds
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.stacks import deploy
from trainer.config import DatasetConfig
from trainer.data.request import request_of

TEXT = {"name": "shakespeare-char", "file": "/data/datasets/.incoming/aa", "sha256": "a" * 64}
DEFAULTS = {"format": "auto", "text_field": "text", "tokenizer": "char", "val_share": 0.1}
OURS = {**TEXT, **DEFAULTS}
USE = DatasetUse("disttrain", "disttrain-pvc", "our-owner", OURS)


class Server(ApiServer):
    """A stand-in for a cluster with the Job and the settings of one stack's data set."""

    def __init__(
        self, dataset: Mapping[str, Any], owner: str = "other-owner", claim: str = "disttrain-pvc"
    ) -> None:
        volumes = [
            {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "config", "configMap": {"name": "dataset-1"}},
        ]
        labels = {
            "app.kubernetes.io/component": "dataset",
            "disttrain.dev/owner": owner,
            "disttrain.dev/stack": "multipod",
        }
        self.job: Json = {
            "metadata": {"name": "download-x", "labels": labels},
            "spec": {"template": {"spec": {"volumes": volumes}}},
        }
        self.text = yaml.safe_dump({"data_root": "/data", "dataset": dict(dataset)})
        self.refused = ""

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if self.refused and path.endswith(self.refused):
            raise ApiError(403, "refused")
        if path == "/apis/batch/v1/namespaces/disttrain/jobs":
            assert query["labelSelector"] == "app.kubernetes.io/component=dataset"
            return {"items": [self.job]}
        if path == "/api/v1/namespaces/disttrain/configmaps/dataset-1":
            return {"metadata": {"name": "dataset-1"}, "data": {"run.yaml": self.text}}
        return None


def problems(server: Server, use: DatasetUse = USE) -> list[str]:
    found = dataset_findings(api_of(server), use)
    assert found.notes == []
    return found.problems


def test_name_with_another_text_is_refused() -> None:
    """The data set would take the place of the other stack's, whose run could then not start
    again.
    """
    (said,) = problems(Server({**OURS, "file": "/data/datasets/.incoming/bb", "sha256": "b" * 64}))
    assert said == (
        "datasetName: 'shakespeare-char' cannot be used: the data set of stack multipod has this "
        "name on the same volume, and another text. This stack's data set would take its place, "
        "and the run of that stack could not start again. Set another name, also if this one is "
        "that of the preset: `pulumi config set datasetName NAME`. If the run of that stack is "
        "needed no more, end it first (its checkpoints are kept): `pulumi destroy --stack multipod`"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer": "gpt2"}, ", and another tokenizer. "),
        ({"val_share": 0.2, "text_field": "body"}, ", and another text_field and val_share. "),
        ({"val_tokens": 5, "tokenizer": "gpt2"}, " another tokenizer and val_tokens. "),
    ],
)
def test_other_tokens_of_one_text_are_refused(changes: dict[str, object], words: str) -> None:
    """The tokens also follow from the tokenizer and the options."""
    (said,) = problems(Server({**OURS, **changes}))
    assert words in said


@pytest.mark.parametrize(
    "dataset",
    [
        OURS,
        # the same text from an address, and not from a file of this machine
        {**DEFAULTS, "name": OURS["name"], "url": "https://h/text", "sha256": "a" * 64},
        {**OURS, "size_bytes": 5},
        {**OURS, "name": "mine", "sha256": "b" * 64},
    ],
    ids=["the same", "by an address", "with its size", "another name"],
)
def test_stacks_share_the_data_set_of_one_text(dataset: dict[str, object]) -> None:
    assert problems(Server(dataset)) == []


def test_several_files_are_compared_by_their_checksums() -> None:
    """A signed address changes while its file stays the same."""

    def of(*files: dict[str, str]) -> dict[str, object]:
        return {**DEFAULTS, "name": "corpus", "files": [*files]}

    use = DatasetUse("disttrain", "disttrain-pvc", "our-owner", of({"url": "u", "sha256": "1"}))
    assert problems(Server(of({"url": "signed", "sha256": "1"})), use) == []
    assert problems(Server(of({"url": "u", "sha256": "2"})), use)
    assert problems(Server(of({"url": "u", "sha256": "1"}, {"url": "v"})), use)


def test_own_former_data_set_is_no_reason() -> None:
    """A stack may change the data of its own run."""
    changed = {**OURS, "sha256": "b" * 64}
    assert problems(Server(changed, owner="our-owner")) == []


def test_first_up_of_a_stack_is_checked() -> None:
    """Before its first `up` a stack has no owner id, and every Job is one of others."""
    first = DatasetUse("disttrain", "disttrain-pvc", "", OURS)
    assert problems(Server({**OURS, "sha256": "b" * 64}), first)
    assert problems(Server({**OURS, "sha256": "b" * 64}, owner=""), first)


def test_same_name_on_another_volume_is_free() -> None:
    """Stacks with platforms of their own may be in one namespace, each with its own claim."""
    assert problems(Server({**OURS, "sha256": "b" * 64}, claim="other-claim")) == []


@pytest.mark.parametrize("refused", ["/jobs", "/configmaps/dataset-1"])
def test_data_sets_that_may_not_be_read_are_noted(refused: str) -> None:
    server = Server({**OURS, "sha256": "b" * 64})
    server.refused = refused
    found = dataset_findings(api_of(server), USE)
    assert found.problems == []
    (note,) = found.notes
    assert "whether another stack uses the name shakespeare-char for other data" in note


@pytest.mark.parametrize("text", ["[]", "dataset: 5", "{"])
def test_settings_that_cannot_be_read_are_noted(text: str) -> None:
    """Somebody may have made the ConfigMap again by hand."""
    server = Server(OURS)
    server.text = text
    found = dataset_findings(api_of(server), USE)
    assert found.problems == []
    (note,) = found.notes
    assert note.endswith("for other data: ConfigMap dataset-1 has changed")


def test_check_of_a_cluster_of_others_asks_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def cluster(access: Access, seconds: float) -> Iterator[Api]:
        yield api_of(Server({**OURS, "sha256": "b" * 64}))

    def nothing(*_: object) -> Findings:
        return Findings()

    monkeypatch.setattr(cluster_check, "read_only_api", cluster)
    monkeypatch.setattr(cluster_check, "storage_findings", nothing)
    monkeypatch.setattr(cluster_check, "missing_rights", lambda *_: list[Need]())
    volume = StorageNeeds("disttrain", "disttrain-pvc", False, "", "ReadWriteMany", "1Gi", 1)
    found = cluster_check.ask(Access(kubeconfig="{}"), volume, [], dataset=USE)
    (problem,) = found.problems
    assert problem.startswith("datasetName: 'shakespeare-char' cannot be used")


def test_cluster_that_does_not_answer_refuses_nothing() -> None:
    """A k3s that is stopped is repaired by `pulumi up`, so a note is enough."""
    found = ask_about_dataset(Access(kubeconfig="no kubeconfig"), USE)
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith("it was not checked whether another stack uses the name shakespeare-ch")


def test_every_option_that_the_trainer_compares_is_compared() -> None:
    """The trainer refuses a data set by an option that it compares, so the preview has to compare
    it too. Otherwise the second stack would take the place of the first one's data set.
    """
    compared = request_of(DatasetConfig(name="own", url="https://example.org/text.txt"))
    assert compared.keys() <= {*OPTIONS, "val_share", "sources"}


def test_name_is_checked_again_before_the_job_is_made(tmp_path: Path) -> None:
    """A data set that another stack has made since the program asked is found before the Job is
    made, and the Job is not made. Two first `up`s at the same time are not seen earlier.
    """
    fields: Json = {"claim": "disttrain-pvc", "dataset": OURS}
    job = Job(Access(kubeconfig="{}"), "disttrain", "our-owner", "dev", fields)
    dataset_name.create(job, api_of(Server(OURS)))
    with pytest.raises(TaskError, match="datasetName: 'shakespeare-char' cannot be used"):
        dataset_name.create(job, api_of(Server({**OURS, "sha256": "b" * 64})))
    for each in deploy("sandbox", tmp_path).resources:
        hooks = [*each.request.hooks.before_create]
        assert ("dataset-name" in hooks) == (each.name == "dataset-job"), each.name
