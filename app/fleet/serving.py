"""The Ray Serve application that deploy/ray/serve.yaml names."""

from ray import serve

from app.fleet.replica import FleetArguments, JudgeReplica, application, fleet_settings, options


def build(arguments: FleetArguments) -> serve.Application:
    """Builds the application that `serve deploy` runs.

    Raises:
        StartupError: The settings do not fit a fleet.
    """
    replica = serve.ingress(application)(JudgeReplica)
    return serve.deployment(replica).options(**options(fleet_settings(), arguments)).bind()
