"""Imported once, before commands fork: the service with the scripted judge."""

import gc
from importlib import import_module

from tests.completed_questions import complete_questions
from tests.seeded_drift import seed_drift

for name in (
    "app.cli.commands.audits",
    "app.cli.commands.serve",
    "app.cli.service_run",
    "app.judges.engines.scripted",
    "app.stores.memory",
    "app.stores.redis",
    "app.stores.sqlite",
):
    import_module(name)
seed_drift()
complete_questions()

# A service collects garbage at its start; what is imported here is none.
gc.freeze()
