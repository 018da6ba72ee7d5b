"""Checks that a request comes from this machine; used if the service has no key file."""

import re
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import Scope

from app.core.errors import ForbiddenError

_PORT = re.compile(r":\d*$")
# Headers in which a proxy names its client; each address in them must be this machine.
_NAMES_CLIENT = frozenset({b"x-forwarded-for", b"x-real-ip"})
# All other headers of a proxy mean refusal. Those of tunnels and content delivery networks name a
# client that is never this machine.
_NAMES_PROXY = frozenset(
    {
        b"forwarded",
        b"via",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-original-forwarded-for",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"do-connecting-ip",
        b"x-azure-clientip",
    }
)
_PROXY_PREFIXES = (b"x-forwarded", b"x-envoy-", b"cf-", b"tailscale-")
# No valid address is longer. The limit keeps the cache small.
_LONGEST_ADDRESS = 64


def check_local(scope: Scope) -> None:
    """Raises ForbiddenError unless the request comes from this machine and names it as its host.

    A proxy on this machine makes other machines look like this one. Therefore all headers that a
    proxy may add are checked. The Host header is checked because of DNS rebinding: a web page whose
    name resolves to 127.0.0.1 can make a browser on this machine send requests here.
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
            fine = name not in _NAMES_PROXY and not name.startswith(_PROXY_PREFIXES)
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
        "without a key file only requests from this machine are answered, sent to 127.0.0.1 or "
        "localhost and not through a proxy: make a key with `scope-judge keys add` and set "
        "SCOPE_API_KEYS_FILE"
    )


def is_loopback(name: str) -> bool:
    """Whether an address is a loopback address or "localhost"; other names are not looked up."""
    return len(name) <= _LONGEST_ADDRESS and _is_loopback(name)


@lru_cache(maxsize=256)
def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
