"""Every fault by name."""

from typing import Any

from tests.drills.faults.engine_faults import REMOTE_FAULTS, VLLM_FAULTS
from tests.drills.faults.experiment import Fault
from tests.drills.faults.service_faults import ROLLING_FAULTS, SERVICE_FAULTS
from tests.drills.faults.store_faults import REDIS_FAULTS, SQLITE_FAULTS

_ALL: tuple[Fault[Any], ...] = (
    *REDIS_FAULTS,
    *SQLITE_FAULTS,
    *VLLM_FAULTS,
    *REMOTE_FAULTS,
    *SERVICE_FAULTS,
    *ROLLING_FAULTS,
)
FAULTS = {fault.name: fault for fault in _ALL}
