"""Makes names that others have chosen safe to print on a terminal. This module is pure."""


def is_text(name: str) -> bool:
    """Whether the name of a file is valid UTF-8. Python gives other names with surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """Return the name with an escape for each character that cannot be printed.

    Such characters are a line break, a terminal's control sequence for a colour, or bytes that are
    no text.
    """
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
