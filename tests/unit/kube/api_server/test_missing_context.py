"""A kubeconfig that no longer has the context that the stack uses."""

from pathlib import Path

import pytest
import yaml

from infra.kube.api_server.access import Access
from infra.kube.errors import KubeconfigError

CONTENT = {
    "clusters": [{"name": "lab", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
    "contexts": [
        {"name": name, "context": {"cluster": "lab", "user": "me"}} for name in ("new", "other")
    ],
    "current-context": "new",
}


def test_missing_context_is_named_with_those_there(tmp_path: Path) -> None:
    """The error about a missing context names the contexts that exist and says what to do. The
    context is missing, for example, after `kubectl config rename-context`.
    """
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONTENT))
    with pytest.raises(KubeconfigError) as refused:
        Access(kubeconfig_path=str(file), context="old").content()
    said = str(refused.value)
    assert said.startswith(f"kubeconfig {file} has no context 'old'; it has new, other. ")
    assert "give it that name again" in said
    assert "run `pulumi up`" in said
    assert Access(kubeconfig_path=str(file), context="new").content() == CONTENT


def test_kubeconfig_without_contexts_says_so() -> None:
    text = yaml.safe_dump({**CONTENT, "contexts": None})
    with pytest.raises(KubeconfigError, match="has no context 'old'; it has none"):
        Access(kubeconfig=text, context="old").content()
