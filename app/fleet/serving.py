"""The Ray Serve application that deploy/ray/serve.yaml names."""

from ray import serve

from app.core.errors import StartupError
from app.fleet.replica import JudgeReplica, application, fleet_settings, options


def build(arguments: dict[str, str]) -> serve.Application:
    """Builds the application that `serve deploy` runs.

    Raises:
        StartupError: The settings do not fit a fleet, or the application has arguments.
    """
    if arguments:
        raise StartupError("the application takes no args: set the options of its deployment Judge")
    replica = serve.ingress(application)(JudgeReplica)
    return serve.deployment(replica).options(**options(fleet_settings())).bind()
