"""Texts that others have chosen, as a terminal may be given them. Pure."""


def is_text(name: str) -> bool:
    """Whether the name of a file is text in UTF-8; others have surrogates for their bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """The name itself, but with escapes for signs that would steer the terminal.

    Such as a line break, a colour, or bytes that are no text.
    """
    if name.isprintable():
        return name
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name
    )
