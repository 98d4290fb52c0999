"""How a value that cannot be used is described: why, and what to do. Pure."""


class SettingError(ValueError):
    """A value cannot be used.

    Args:
        reason: why; goes on after a colon, without a full stop.
        hint: what to do, as a sentence without its full stop.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}. {hint}.")
        self.reason = reason
        self.hint = hint


def problem_text(key: str, shown: str, reason: str, hint: str) -> str:
    """One problem of the configuration: key, value, why it cannot be used, and what to do."""
    return f"{key}: {shown} cannot be used: {reason}. {hint}."
