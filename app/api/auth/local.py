"""Whether a request comes from this machine; without a file of keys no other one is served."""

import re
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import Scope

from app.core.errors import ForbiddenError

_PORT = re.compile(r":\d*$")
# A proxy names its client here; each of the addresses in it has to be this machine.
_NAMES_CLIENT = frozenset({b"x-forwarded-for", b"x-real-ip"})
# Any other header of a proxy says that there is one, and not for whom.
_NAMES_PROXY = frozenset({b"forwarded", b"via"})
_PROXY_PREFIX = b"x-forwarded-"
# No address is longer; what is cached stays small.
_LONGEST_ADDRESS = 64


def check_local(scope: Scope) -> None:
    """Raises ForbiddenError unless the request comes from this machine, and by its own name.

    A proxy on this machine makes strangers look like this machine, so that every header counts
    that a proxy may have added. The name counts because a web page can make a browser on this
    machine send requests here, if the page's own name resolves to 127.0.0.1.
    """
    client, server = scope.get("client"), scope.get("server")
    if client and not is_loopback(client[0]):
        raise _only_local()
    if server and server[1] is not None and not is_loopback(server[0]):
        raise _only_local()
    for name, value in scope["headers"]:
        if name == b"host":
            fine = _is_own_name(value.decode("latin-1"))
        elif name in _NAMES_CLIENT:
            fine = all(map(_is_own_address, value.decode("latin-1").split(",")))
        else:
            fine = name not in _NAMES_PROXY and not name.startswith(_PROXY_PREFIX)
        if not fine:
            raise _only_local()


def _is_own_address(listed: str) -> bool:
    address = listed.strip()
    return is_loopback(address) or (bool(address) and _is_own_name(address))


def _is_own_name(host: str) -> bool:
    name = host.rpartition(":")[0] if _PORT.search(host) else host
    return not host or is_loopback(name.strip("[]"))


def _only_local() -> ForbiddenError:
    return ForbiddenError(
        "without a file of keys only this machine is served, as 127.0.0.1 or localhost and not "
        "through a proxy: make a key with `scope-judge keys add` and set SCOPE_API_KEYS_FILE"
    )


def is_loopback(name: str) -> bool:
    """Whether an address is this machine's own; a name that has to be looked up is not."""
    return len(name) <= _LONGEST_ADDRESS and _is_loopback(name)


@lru_cache(maxsize=256)
def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
