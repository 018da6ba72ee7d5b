"""scope-judge serve | judge | calibrate | curve | evaluate | keys: the only package that prints."""

from typing import Annotated

import typer

from app import __version__
from app.cli import calibrate, curve, evaluate, judge, keys, serve

app = typer.Typer(
    help="An LLM judge that answers A, B or abstain, with a bound on the error of what it accepts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for _command in (
    serve.serve,
    judge.judge,
    calibrate.calibrate,
    curve.curve,
    evaluate.evaluate,
):
    app.command()(_command)
app.add_typer(keys.app, name="keys")


def main() -> None:
    """The console script `scope-judge`."""
    app()


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
