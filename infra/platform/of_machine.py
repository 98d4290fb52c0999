"""Makes names for commands that belong to one machine, and whose `delete` runs last of all."""


def of_machine(name: str, *machine: str) -> str:
    """Make the name of a command for a machine, so that another machine is another resource.

    Suppose the name did not depend on the machine. If the settings then name another machine, an
    `up` replaces the command: it runs the `create` for the new machine, and last the `delete` for
    the former one. If the former machine is lost, that `delete` fails. Each later `up` tries it
    again with the inputs in the state. The user may have marked the machine as lost by then, but
    the inputs in the state do not say so. Replacing the command once more is no way out either,
    because that would run `create` on a lost machine.

    Up to 2026-11-27 the name did not contain the machine. So the command needs that older name as
    an alias. Without the alias the engine would delete the command of the older name, and with it
    what the command has made on the machine.

    Args:
        name: name of the command, without the machine.
        machine: address of the machine, and what else distinguishes it, such as its role.
    """
    return "-".join([name, *(word.replace(":", ".") for word in machine)])
