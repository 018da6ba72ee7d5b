"""The commands of scope-judge: the only package that prints."""

import importlib
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from app.release import RELEASE

# Command -> its line in the help. A module is named after its command.
COMMANDS: Mapping[str, str] = {
    "serve": "Run the service.",
    "fetch": "Download the judge's weights before the service starts.",
    "check": "Check the address, key and criterion of a service by judging one group.",
    "judge": "Judge files of pairs.",
    "filter": "Keep the preference pairs that the judge confirms, for DPO.",
    "pairs": "Make preference pairs for DPO from prompts with several responses.",
    "battles": "Judge battles of models, for a leaderboard.",
    "cascade": "Plan a cascade: a small judge first, a large one for the rest.",
    "calibrate": "Add labeled pairs to a calibration set.",
    "curve": "Is my judge good enough? Shows which alphas your labeled pairs make feasible.",
    "evaluate": "Measure a judge on labeled pairs with the paper's protocol.",
    "leaderboard": "Rate models from judged battles, with intervals and rank sets.",
    "noise-check": "Measure how much a judge's scores depend on the other pairs in a batch.",
    "sets": "List, show, restore, delete and move calibration sets.",
    "audits": "Label audits from files and absorb them, end alarms, and show the trail.",
    "backup": "Write the complete store to a file while the service runs.",
    "restore": "Fill an empty store from a backup.",
    "keys": "Create, list and revoke API keys.",
}
# Commands with subcommands: their modules have an `app`.
_GROUPS = ("cascade", "sets", "audits", "keys")


class _LazyCommands(TyperGroup):
    """Imports the module of a command when the command is run: some take seconds to import."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; errors and Ctrl-C of any command end in `app.cli.stopping`."""
        from app.cli.stopping import ending

        with ending():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command without options, for the list of commands."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, with its options, and the other arguments."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, None if found is None else command(str(name)), rest


def command(name: str) -> Any:
    """The command with its options."""
    function = name.replace("-", "_")
    module = importlib.import_module(f"app.cli.commands.{function}")
    if name in _GROUPS:
        return typer.main.get_command(module.app)
    alone = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
    alone.command(name)(getattr(module, function))
    return typer.main.get_command(alone)


app = typer.Typer(
    help="An LLM judge that answers A, B or abstain, with a bound on the error of what it accepts.",
    cls=_LazyCommands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script `scope-judge`."""
    app()


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and, in a clone, the commit.")
    ] = False,
) -> None:
    if version:
        typer.echo(RELEASE)
        raise typer.Exit
