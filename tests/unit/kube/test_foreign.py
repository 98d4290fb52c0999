"""How an error names the owner of an object that this stack has not made."""

import pytest

from infra.kube.errors import TaskError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.namespaces import claim_names
from infra.kube.namespaces.claim_namespace import refusal
from infra.kube.objects import Json
from infra.kube.queues.claim_queues import refuse

PATH = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpus"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, "was not made by this stack"),
        (
            {"disttrain.dev/owner": "o2", "disttrain.dev/stack": "dev"},
            "belongs to another stack named dev (owner o2), perhaps a colleague's",
        ),
        (
            {"disttrain.dev/owner": "o2"},
            "belongs to another stack (owner o2), perhaps a colleague's",
        ),
    ],
    ids=["of nobody", "of a stack", "of an unnamed stack"],
)
def test_checks_name_owner_alike(labels: dict[str, str], words: str) -> None:
    """The errors about a namespace and about a queue of somebody else name its owner in the same
    words. The owner is nobody, a known stack, or a stack whose name is not known.
    """
    item: Json = {"metadata": {"name": "gpus", "labels": labels}}
    assert belongs(item) == words
    with pytest.raises(TaskError) as of_queue:
        refuse(item, PATH)
    for refused in (refusal("shared", item, "o1", "dev"), str(of_queue.value)):
        assert f"exists on the cluster and {words}, so it is left as it is" in refused


def test_stack_without_owner_owns_nothing_yet() -> None:
    """Before its first `up` a stack has no owner id. The preview then refuses an object of others
    without an owner too, since `up` would refuse it.
    """
    item: Json = {"metadata": {"name": "proxy-config"}}
    assert is_foreign(item, "")
    path = "/api/v1/namespaces/team/secrets/proxy-config"
    said = claim_names.refusal("team", [(path, item)], "")
    assert "secrets/proxy-config, which was not made by this stack" in said
    mine: Json = {"metadata": {"name": "proxy-config", "labels": {"disttrain.dev/owner": "o1"}}}
    assert not is_foreign(mine, "o1")
