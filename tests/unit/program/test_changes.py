"""What a changed setting changes of a run, and what it leaves as it is."""

import json
from pathlib import Path

from tests.unit.program.parts import revision, training_template
from tests.unit.stacks import PROJECT, deploy


def test_a_changed_run_changes_the_training_and_not_the_data_set(tmp_path: Path) -> None:
    """Another number of steps makes other training pods and another ConfigMap, and leaves the Job
    of the data set as it is.
    """
    before = deploy("sandbox", tmp_path)
    after = deploy("sandbox", tmp_path, {"run": {"train": {"max_steps": 700}}})
    assert training_template(before) != training_template(after)
    assert before.one("dataset-job").inputs == after.one("dataset-job").inputs
    name = before.one("run-config-map").inputs["metadata"]["name"]
    assert after.one("run-config-map").inputs["metadata"]["name"] != name
    assert "max_steps: 700" in after.one("run-config-map").inputs["data"]["run.yaml"]


def test_another_proxy_makes_other_pods_and_another_password_does_not(tmp_path: Path) -> None:
    """Another address of the proxy makes other pods. Another password of the same proxy does
    not.
    """

    def with_proxy(url: str) -> str:
        return revision(deploy("sandbox", tmp_path, {"httpProxy": url}, ["httpProxy"]))

    plain = revision(deploy("sandbox", tmp_path))
    first = with_proxy("http://user:one@proxy:3128")
    assert first != plain
    assert with_proxy("http://user:two@proxy:3128") == first
    assert with_proxy("http://user:one@other:3128") != first


def test_another_checkout_sends_no_file_again(tmp_path: Path) -> None:
    """A file inside the checkout is recorded by its path from the project's folder, in which
    commands run. So `up` from a checkout at another place changes nothing. Other files are recorded
    by their whole path.
    """

    def recorded(file: str) -> str:
        command = deploy("dev", tmp_path, {"datasetFile": file}).one("dataset-upload")
        (sent,) = json.loads(command.inputs["stdin"])["files"]
        return sent["source"]

    assert recorded("README.md") == recorded(str(PROJECT / "README.md")) == "README.md"
    elsewhere = tmp_path / "input.txt"
    elsewhere.write_text("To be, or not to be\n" * 40)
    assert recorded(str(elsewhere)) == str(elsewhere)
