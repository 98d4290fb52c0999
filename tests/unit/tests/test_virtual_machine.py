"""The parts of tests/vm that need no virtual machine."""

from tests.vm.debian import MODULES, modules_in_order

NEEDS = {"nfsd": ["sunrpc", "lockd"], "lockd": ["grace", "sunrpc"], "nfsv4": ["sunrpc"]}


def test_modules_come_after_those_that_they_need() -> None:
    """Each kernel module comes after the modules that it needs."""
    names = {*MODULES, *NEEDS, *(other for others in NEEDS.values() for other in others)}
    lines = [
        f"kernel/{name}.ko: {' '.join(f'kernel/{other}.ko' for other in NEEDS.get(name, []))}"
        for name in sorted(names)
    ]
    order = modules_in_order("\n".join(lines))
    assert set(order) == {f"kernel/{name}.ko" for name in names}
    assert len(order) == len(names)
    for name, others in NEEDS.items():
        for other in others:
            assert order.index(f"kernel/{other}.ko") < order.index(f"kernel/{name}.ko")
