"""`scope-judge fetch`: fetches the judge's weights, so that a later start needs no download."""

from app.cli.console import CommandError, say
from app.core.errors import StartupError


def fetch() -> None:
    """Fetch the weights of SCOPE_MODEL at SCOPE_REVISION into HF_HOME.

    A start then takes them from there; in a cluster, probes do not count the download.
    """
    from app.settings import read_settings
    from app.wiring.engines import fetch_model

    try:
        folder = fetch_model(read_settings())
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    except StartupError as exc:
        raise CommandError(exc.detail) from None
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{size / 1e9:.1f} GB of the judge are in {folder}")
