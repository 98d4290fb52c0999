"""The look of `disttrain status` at a real cluster, with all rights and with a viewer's."""

from pathlib import Path

import yaml

from cli.status.look import look
from infra.kube.api import Api
from tests.kube.lab import Lab, Run


def viewer(lab: Lab, namespace: str, folder: Path) -> Api:
    """Somebody who may read this one namespace and nothing else."""
    lab.kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    user = f"--serviceaccount={namespace}:viewer"
    lab.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", user, "-n", namespace)
    token = lab.kubectl("create", "token", "viewer", "-n", namespace).strip()
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return Api(lab.access(file))


def test_a_viewer_of_one_namespace_sees_its_runs_and_what_is_not_shown(
    lab: Lab, tmp_path: Path
) -> None:
    namespace, elsewhere = lab.namespace(), lab.namespace()
    run = Run(lab, namespace, "dev")
    run.up()
    assert Run(lab, elsewhere, "theirs").hand_over()[0] == 0
    found = {(r.namespace, r.stack): r.state for r in look(lab.api, namespace).runs}
    assert found[namespace, "dev"] == "starting"  # its pods never print a step
    assert found[elsewhere, "theirs"] == "starting"  # its `up` is under way
    assert look(lab.api, namespace).platform.nodes == 1
    seen = look(viewer(lab, namespace, tmp_path), namespace)
    assert [(r.stack, r.state) for r in seen.runs] == [("dev", "starting")]
    assert f"runs in other namespaces than {namespace}" in seen.unseen
    assert seen.platform.nodes is None
    assert "forbidden" in seen.platform.unseen
