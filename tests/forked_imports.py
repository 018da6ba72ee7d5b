"""Imported once, before commands fork: the service with the scripted judge, and `label`."""

import gc
from importlib import import_module

from tests.seeded_drift import seed_drift

for name in (
    "app.cli.commands.audits",
    "app.cli.commands.label",
    "app.cli.commands.noise",
    "app.cli.commands.serve",
    "app.cli.labelling.screen",
    "app.cli.service_run",
    "app.engines.scripted",
    "app.stores.memory",
    "app.stores.redis",
    "app.stores.sqlite",
):
    import_module(name)
seed_drift()

# A service collects garbage at its start; what is imported here is none.
gc.freeze()
