"""Makes all checks of `./disttrain verify`, as the last step of `up` with `verify: after`."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.kube_command import Connection, kube_command
from infra.workloads.run import Run

LIMIT_SECONDS = 900


@dataclass(frozen=True)
class VerificationArgs:
    """What is verified.

    Args:
        run: the run as a value.
        run_path: the path of the run's folder in the pods.
        connection: how the program reaches the cluster.
        uid: the uid of the run's workload. A new workload is verified again.
    """

    run: Run
    run_path: str
    connection: Connection
    uid: pulumi.Output[str]


class Verification(pulumi.ComponentResource):
    """Checks the pods and the volume. `up` fails if a check fails."""

    report: pulumi.Output[str]
    """The result of each check, with its evidence."""

    def __init__(
        self, name: str, args: VerificationArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Verification", name, {}, opts)
        run = args.run
        command = kube_command(
            f"{name}-look",
            "verify",
            args.connection,
            {
                "revision": run.revision,
                "uid": args.uid,
                "place": {
                    "image": run.parts.image,
                    "run_path": args.run_path,
                    "workload": run.workload_name,
                    "claim": run.parts.claim,
                    "placement": run.task_placement,
                    "world_size": run.world.world_size,
                },
            },
            child_options(self, opts),
            limit_seconds=LIMIT_SECONDS,
            program="cli.verify.at_up",
        )
        self.report = command.stdout
        self.register_outputs({"report": self.report})
