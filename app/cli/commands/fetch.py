"""`scope-judge fetch`: downloads the judge's weights before the service starts."""

from app.cli.console import say


def fetch() -> None:
    """Download the weights of SCOPE_MODEL at SCOPE_REVISION into HF_HOME.

    The service then starts without a download.
    """
    from app.settings import read_settings
    from app.wiring.engines import fetch_model

    folder = fetch_model(read_settings())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"the judge's files ({size / 1e9:.1f} GB) are in {folder}")
