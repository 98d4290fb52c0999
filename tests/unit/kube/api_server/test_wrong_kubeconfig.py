"""A kubeconfig that was edited by hand, so that a part of it has a wrong form."""

from collections.abc import Mapping

import pytest
import yaml

from infra.kube.api_server.access import Access
from infra.kube.errors import KubeconfigError

CONTENT: dict[str, object] = {
    "clusters": [{"name": "lab", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [{"name": "me", "user": {"token": "secret-token"}}],
    "contexts": [{"name": "new", "context": {"cluster": "lab", "user": "me"}}],
    "current-context": "new",
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusters": {"lab": {}}}, "`clusters` is no list"),
        ({"users": ["me"]}, "entry 1 of `users` is no object"),
        (
            {"users": [{"name": "me", "user": "secret-token"}]},
            "`user` of 'me' in `users` is no obj",
        ),
        ({"contexts": [{"name": "new", "context": ["lab"]}]}, "`context` of 'new' in `contexts`"),
        ({"contexts": [{"name": ["new"]}]}, "`name` of entry 1 of `contexts` is no text"),
        ({"contexts": [{"name": "new", "context": {"user": {}}}]}, "`user` of context 'new' is no"),
        ({"current-context": ["new"]}, "`current-context` is no text"),
    ],
)
def test_part_of_wrong_form_is_named(changes: Mapping[str, object], words: str) -> None:
    """The error about a part with a wrong form names the part and shows no secret. Otherwise the
    user would see a traceback.
    """
    text = yaml.safe_dump({**CONTENT, **changes})
    with pytest.raises(KubeconfigError) as refused:
        Access(kubeconfig=text).content()
    said = str(refused.value)
    assert said.startswith("the kubeconfig of the stack cannot be used: ")
    assert words in said
    assert "secret-token" not in said


def test_entries_without_content_are_accepted() -> None:
    """Entries without content and numbers as names are accepted, because kubectl writes and accepts
    them.
    """
    text = yaml.safe_dump({**CONTENT, "users": None, "contexts": [{"name": 1, "context": None}]})
    assert Access(kubeconfig=text).content()["users"] is None
