"""With DRY_RUN=1 on a real host, each script says what it would change, and writes nothing."""

from pathlib import Path

from infra.node.shell_program import assemble_program, script_text
from tests.cli.servers import make_certificate
from tests.node.lab import DATA_ROOT, Lab, rewritten
from tests.node.members import TRUST

# For each script: its variables, and what its dry `create` and `delete` say.
SHOWN = {
    "ca-certificates.sh": (
        {},
        f"would write: {TRUST}, and run update-ca-certificates",
        f"would remove: {TRUST}, and run update-ca-certificates",
    ),
    "data-root.sh": (
        {"DATA_ROOT": DATA_ROOT, "PURGE": DATA_ROOT},
        "\n".join(
            f"would make: {DATA_ROOT}{folder}"
            for folder in ("", "/datasets", "/datasets/.incoming", "/runs")
        ),
        f"would remove: {DATA_ROOT}/datasets, {DATA_ROOT}/runs",
    ),
}


def run(lab: Lab, script: str, action: str, variables: dict[str, str]) -> str:
    """Run a script on the host, and return its output."""
    program = assemble_program(script_text(script), variables)
    return lab.host.shell(f"sh -s -- {action}", program).strip()


def test_dry_scripts_of_the_host_say_what_they_would_and_change_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path / "certificate").strip()
    given = {"ca-certificates.sh": {"CA_BUNDLE": certificate}}
    all_variables = {name: {**shown[0], **given.get(name, {})} for name, shown in SHOWN.items()}
    for action, which in (("create", 1), ("delete", 2)):
        before = lab.host.files()
        for script, shown in SHOWN.items():
            dry = {**all_variables[script], "DRY_RUN": "1"}
            assert run(lab, script, action, dry) == shown[which], script
        assert rewritten(before, lab.host.files()) == []
        for script in SHOWN:
            run(lab, script, action, all_variables[script])
        # Without DRY_RUN each script does change something, so the comparison above means
        # something.
        changed = rewritten(before, lab.host.files())
        assert {TRUST, f"{DATA_ROOT}/runs"} <= set(changed)
