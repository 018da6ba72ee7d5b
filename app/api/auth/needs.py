"""The permission that each route requires of its caller."""

from collections.abc import Mapping
from typing import Literal

from app.api.auth.callers import Role

Need = Role | Literal["calibrate or label", "key", "any key", "nothing", "switch", "nobody"]
# Method and path of a route -> the required role, `key` (any key that may do more than label),
# `any key`, `nothing`, or `switch` (SCOPE_METRICS decides). Roles do not include each other; a key
# can have several.
NEEDS: Mapping[tuple[str, str], Need] = {
    ("POST", "/judge"): "judge",
    ("POST", "/judge/batch"): "judge",
    ("POST", "/rewards/group"): "judge",
    ("POST", "/rewards/groups"): "judge",
    ("POST", "/rewards/reference"): "judge",
    ("POST", "/rewards/openrlhf"): "judge",
    ("POST", "/v1/systemone"): "judge",
    ("POST", "/v1/decisions"): "judge",
    ("POST", "/scores"): "judge",
    ("POST", "/calibrate"): "calibrate",
    ("POST", "/calibrate/scores"): "calibrate",
    ("GET", "/calibrations"): "key",
    ("GET", "/calibrations/{name}"): "key",
    ("GET", "/calibrations/{name}/examples"): "key",
    ("POST", "/calibrations/{name}/examples"): "calibrate",
    ("GET", "/calibrations/{name}/monitor"): "key",
    ("GET", "/calibrations/{name}/audit-trail"): "key",
    ("POST", "/calibrations/{name}/resume"): "calibrate",
    ("POST", "/calibrations/{name}/pool"): "calibrate",
    ("POST", "/calibrations/{name}/cascade"): "calibrate",
    ("GET", "/calibrations/{name}/next"): "key",
    ("GET", "/calibrations/{name}/versions"): "key",
    ("POST", "/calibrations/{name}/rollback"): "admin",
    ("DELETE", "/calibrations/{name}"): "admin",
    ("GET", "/audits"): "any key",
    ("POST", "/audits/labels"): "calibrate or label",
    ("POST", "/calibrations/{name}/absorb"): "calibrate",
    ("GET", "/healthz"): "nothing",
    ("GET", "/readyz"): "nothing",
    ("GET", "/metrics"): "switch",
    ("GET", "/info"): "any key",
    ("GET", "/usage"): "key",
    ("GET", "/openapi.json"): "key",
    ("GET", "/docs"): "key",
    ("GET", "/docs/{name}"): "key",
    # The page has no data: it asks for a key and sends it with its own requests.
    ("GET", "/desk"): "nothing",
    ("GET", "/desk/{file:path}"): "nothing",
}

# Answered without a key, from any machine, and while all connections are busy.
PROBES = frozenset(("/healthz", "/readyz"))

# Trainers send no header of their own to these routes; their HTTP clients make Basic of a key in
# the URL.
TAKES_BASIC = frozenset(path for _, path in NEEDS if path.startswith("/rewards/"))
