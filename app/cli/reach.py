"""Who can reach `scope-judge serve`: whoever has a key, or this machine alone."""

from app.api.auth.keys import Keys, open_keys
from app.api.auth.local import is_loopback
from app.cli.console import ConsoleObserver, console, failure
from app.core.errors import StartupError
from app.settings import Settings


def keys_of(settings: Settings, observer: ConsoleObserver) -> Keys | None:
    """The keys that are let in; None where no file of keys is set."""
    try:
        return open_keys(settings.api_keys_file, observer.warning)
    except StartupError as exc:
        raise failure(exc.detail) from None


def reachable(settings: Settings, keys: Keys | None, observer: ConsoleObserver) -> Settings:
    """The settings with an address that may be listened on: without keys, this machine's own."""
    if keys is not None:
        return settings
    if is_loopback(settings.host):
        console.print("No keys are set: only this machine can reach the service.")
        return settings
    observer.warning(
        f"it listens on 127.0.0.1, not on {settings.host} as --host or SCOPE_HOST has it: without "
        "keys, whoever reaches the service may do everything. Make a key with `scope-judge keys "
        "add NAME --role judge --file keys.json` and set SCOPE_API_KEYS_FILE=keys.json"
    )
    return settings.model_copy(update={"host": "127.0.0.1"})
