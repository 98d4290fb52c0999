"""Shows the results of the doctor or of `verify`, as text for people or as JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from cli.check import Result
from infra.command_line import without_control, without_passwords

NO_FINDINGS, FINDINGS, COULD_NOT_CHECK = 0, 1, 2
FAIL_ON = {"warning": ("error", "warning"), "error": ("error",), "none": ()}
WIDTH = 200  # longer texts are cut: Pulumi's command provider stops reading at very long lines


@dataclass(frozen=True)
class Report:
    """The results of one examination; `reached` is false if the host could not be examined."""

    host: str
    results: Sequence[Result]
    seconds: float
    reached: bool = True
    title: str = "doctor"

    def exit_code(self, fail_on: str = "warning") -> int:
        """The exit status: 0 for no findings, 1 for findings, 2 if something could not be checked.

        Checks that could not be made count only if `fail_on` is `warning`. The default of the
        setting `doctor` is `error`, so they do not stop `pulumi up`.
        """
        if not self.reached:
            return COULD_NOT_CHECK
        if any(result.status in FAIL_ON[fail_on] for result in self.results):
            return FINDINGS
        if fail_on == "warning" and any(result.status == "not checked" for result in self.results):
            return COULD_NOT_CHECK
        return NO_FINDINGS

    def text(self, *, everything: bool = False) -> str:
        """The findings with their fixes, and the checks that could not be made; errors come first.

        With `everything` the text also has all other results.
        """
        shown = [result for result in self.results if everything or result.is_finding]
        shown += [r for r in self.results if r.status == "not checked" and r not in shown]
        order = ("error", "warning", "not checked", "ok", "not applicable")
        lines: list[str] = []
        for result in sorted(shown, key=lambda result: order.index(result.status)):
            said = f"{result.place}: {result.evidence}" if result.place else result.evidence
            lines.append(f"{result.status:<14} {result.id:<19} {_short(said)}")
            if result.fix:
                lines.append(f"{'':<14} {'':<19} fix: {_short(result.fix)}")
        return without_passwords("\n".join([*lines, self._summary()]))

    def json(self, fail_on: str = "warning") -> str:
        """All results as JSON."""
        content = {
            "host": self.host,
            "reached": self.reached,
            "seconds": round(self.seconds, 2),
            "exit_code": self.exit_code(fail_on),
            "counts": dict(_counts(self.results)),
            "checks": [asdict(result) for result in self.results],
        }
        return without_passwords(json.dumps(content, indent=2))

    def _summary(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in _counts(self.results).items())
        number = len(self.results)
        checks = f"{number} check{'' if number == 1 else 's'} in {self.seconds:.1f} s"
        return f"{self.title}: {self.host}: {checks}: {counts}"


def _counts(results: Iterable[Result]) -> Counter[str]:
    return Counter(result.status for result in results)


def _short(text: str) -> str:
    """The text as a terminal may show it, cut to WIDTH. It has words of a host or of a pod."""
    text = "\n".join(map(without_control, text.split("\n")))
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
