"""`disttrain runs` on a real cluster: the list, the picture, and what may be deleted."""

import json
import subprocess
from pathlib import Path

from tests.cli.fetch.local_pod import make_run
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.volume import cli, configure, give_to_pods, no_pods, runs_folder

LIMIT_SECONDS = 300


def ended(process: subprocess.Popen[bytes], answer: str = "") -> tuple[int, str]:
    """Answer a command's question, wait for its end, and return its exit status and output."""
    output = process.communicate(answer.encode(), timeout=LIMIT_SECONDS)[0].decode()
    return process.returncode, output


def test_runs_are_listed_compared_and_deleted(lab: Lab, claim: Run, tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        make_run(runs_folder(claim) / name)
    give_to_pods(runs_folder(claim))
    status, output = claim.hand_over()
    assert status == 0, output
    configure(lab, claim, "second")

    status, output = ended(cli(lab, claim, tmp_path, "runs"))
    assert status == 0, output
    lines = {line.split()[0]: line.split() for line in output.splitlines() if "99/300" in line}
    assert [lines[name][-1] for name in ("first", "second", "third")] == ["stack", "dev", "-"]
    status, output = ended(cli(lab, claim, tmp_path, "runs", "--json"))
    found = json.loads(output[output.index("{\n") :])
    assert 0 < found["volume"]["free_bytes"] <= found["volume"]["total_bytes"]
    assert [each["checkpoint_step"] for each in found["runs"]] == [100, 100, 100]

    picture = tmp_path / "two.svg"
    words = ("runs", "compare", "third", "first", "--to", str(picture))
    status, output = ended(cli(lab, claim, tmp_path, *words))
    assert status == 0, output
    assert picture.read_text() == "<svg> /data/runs/third /data/runs/first --output - </svg>\n"
    assert "the losses are drawn in" in output

    for name, reason in (
        ("first", "the selected stack"),
        ("second", "dev"),
        ("fourth", "is not on"),
    ):
        status, output = ended(cli(lab, claim, tmp_path, "runs", "delete", name, "--yes"))
        assert status == 2, output
        assert reason in output
    status, output = ended(cli(lab, claim, tmp_path, "runs", "delete", "third"), "no\n")
    assert status == 1, output
    assert (runs_folder(claim) / "third").exists()
    status, output = ended(cli(lab, claim, tmp_path, "runs", "delete", "third"), "third\n")
    assert status == 0, output
    assert sorted(path.name for path in runs_folder(claim).iterdir()) == ["first", "second"]
    wait_for("the pods to be gone", lambda: no_pods(lab, claim))
