import warnings

with warnings.catch_warnings():
    # the package warns of its own deprecated resource whenever it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    import pulumi_command.remote  # noqa: F401
    from pulumi_command.remote import Command  # noqa: F401  # makes the lazy import happen
