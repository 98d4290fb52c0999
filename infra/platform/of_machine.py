"""Names of commands that are for one machine, and whose `delete` comes last of all."""


def of_machine(name: str, *machine: str) -> str:
    """The name for this machine: another machine is another resource.

    If both were one resource, an `up` would replace it, with the `delete` of the former one last,
    and then fail where the former machine is lost. Each `up` after that would try the `delete`
    again, with the inputs of before: that the machine is gone, which the user has set by then,
    would not be in them. And to replace it once more would mean to run `create` on a lost machine.

    Up to 2026-11-27 the name had no machine in it. So that one needs to be an alias: as another
    resource it would be deleted, and what it has made on the machine with it.

    Args:
        name: without the machine.
        machine: its address, and what else tells it from another one.
    """
    return "-".join([name, *(word.replace(":", ".") for word in machine)])
