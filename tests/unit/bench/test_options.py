"""A measurement refuses a name that it does not know, before it starts a cluster."""

import sys
from types import ModuleType

import pytest

from bench import gangs, kinds, node, preemption


@pytest.mark.parametrize("module", [gangs, kinds, node, preemption])
def test_an_unknown_name_is_refused_before_anything_is_made(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cluster_lab(scratch: object) -> object:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr(module, "cluster_lab", cluster_lab)
    monkeypatch.setattr(sys, "argv", ["bench", "no-such"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert "no-such cannot be used: there is no such" in capsys.readouterr().err
