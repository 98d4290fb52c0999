"""`make demo-local`, which people without a cluster type."""

import sys
from pathlib import Path

import pytest

from sandbox import demo_local

INTERNALS = ('{"', "Traceback", "Skipping await", "kubeconfig", "PET_")


def test_local_demo_trains_and_writes_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The demo trains with two real ranks, and shows the steps, where the time went and a sample.
    It shows nothing that only its developers understand.
    """
    monkeypatch.setattr(demo_local, "DATA_ROOT", tmp_path)
    # The tests' own virtual environment has the trainer's packages too. Making another one would
    # take minutes.
    monkeypatch.setattr(demo_local, "ensure_venv", lambda name: Path(sys.prefix))
    demo_local.run(demo_local.Options(processes=2, device="cpu", steps=20))
    said = capfd.readouterr().out
    assert "step 20/20 loss " in said
    assert "run demo-local is finished: step 20" in said
    account, sample = said.split("where the time went:")[1].split("sample:")
    assert "productive" in account
    assert str(tmp_path / "runs/demo-local/checkpoints") in account
    assert len(sample.strip()) > 100
    assert [word for word in INTERNALS if word in said] == []
