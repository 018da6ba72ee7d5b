"""Access to `scope-judge serve`: without keys, it listens on this machine only."""

from app.api.auth.keys import Keys, open_keys
from app.api.auth.local import is_loopback
from app.cli.console import failure
from app.core.errors import StartupError
from app.settings import Settings
from app.wiring.startup import StartupObserver


def keys_of(settings: Settings, observer: StartupObserver) -> Keys | None:
    """The keys that the service accepts; None if no file of keys is set.

    Raises:
        typer.Exit: The file cannot be used.
    """
    try:
        return open_keys(settings.api_keys_file, observer.warning)
    except StartupError as exc:
        raise failure(exc.detail) from None


def reachable(settings: Settings, keys: Keys | None, observer: StartupObserver) -> Settings:
    """The settings; without keys, their host is replaced by 127.0.0.1."""
    if keys is not None:
        return settings
    if is_loopback(settings.host):
        observer.note("No keys are set: only this machine can reach the service.")
        return settings
    observer.warning(
        f"the service listens on 127.0.0.1, not on {settings.host} as --host or SCOPE_HOST says: "
        "without keys, everybody who reaches the service may do everything. Make a key with "
        "`scope-judge keys add NAME --role judge --file keys.json` and set "
        "SCOPE_API_KEYS_FILE=keys.json"
    )
    return settings.model_copy(update={"host": "127.0.0.1"})
