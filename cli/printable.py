"""Names that others have chosen, as a terminal may be given them. Pure."""


def printable(name: str) -> str:
    """The name itself, or with escapes where it has signs that would steer the terminal.

    Such as a line break, a colour, or bytes that are no text.
    """
    return name if name.isprintable() else name.encode("unicode_escape", "surrogatepass").decode()
