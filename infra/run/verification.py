"""With `verify: after` the last step of `up`: every point of `./disttrain verify` holds."""

from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command
from infra.workloads.run import Run

LIMIT_SECONDS = 900


@dataclass(frozen=True)
class VerificationArgs:
    """What is verified.

    Args:
        run: the run as a value.
        run_path: its folder, as pods see it.
        connection: the cluster.
        uid: of the run's workload; another one is verified again.
    """

    run: Run
    run_path: str
    connection: Connection
    uid: pulumi.Output[str]


class Verification(pulumi.ComponentResource):
    """Looks at the pods and at the volume; `up` fails when something is wrong there."""

    report: pulumi.Output[str]
    """Each point with its evidence."""

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
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
            limit_seconds=LIMIT_SECONDS,
            program="cli.verify.at_up",
        )
        self.report = command.stdout
        self.register_outputs({"report": self.report})
