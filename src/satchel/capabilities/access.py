"""What a capability may reach, in sentences for the user, and as the sandbox takes it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from satchel.capabilities.records import MCP, MODEL, Access
from satchel.sandbox.port import Network


def sentences(access: Access, *, name: str = "It") -> tuple[str, ...]:
    """One sentence for each thing that a capability may reach. `name` is their subject."""
    said = [f"{name} may connect to {_host_in_words(host)}." for host in access.network]
    said += [
        f"{name} may {_called_in_words(called)}, and pass on what it was given." for called in access.calls
    ]
    # Hosts that were approved before are not among those that are asked about now.
    reach = "send it to the hosts above" if access.network else "send it to every host that it may reach"
    said += [
        f"{name} gets the value of {secret} from your environment, a secret, and can {reach}."
        for secret in access.secrets
    ]
    if access.state:
        said.append(f"{name} keeps files of its own from one run to the next.")
    return tuple(said)


def network_of(access: Access) -> Network:
    """The network of a run. A private address is reachable only if the user approved it as an address."""
    if not access.network:
        return Network()
    return Network(mode="allow", hosts=access.network, private=tuple(filter(is_private, access.network)))


def _called_in_words(called: str) -> str:
    if called == MODEL:
        return "ask your language model, at your expense"
    if called.startswith(MCP):
        server, _, tool = called.removeprefix(MCP).partition(".")
        return f"use {tool} of the MCP server {server}, whatever that does"
    return f"call the capability {called}"


def _host_in_words(host: str) -> str:
    name, _, port = host.rpartition(":")
    if is_private(host):
        return f"{name}, a private address, on port {port}"
    words = f"every host below {name[2:]}" if name.startswith("*.") else name
    return words if port == "443" else f"{words} on port {port}"


def is_private(host: str) -> bool:
    """Whether an entry names an address of this computer or of a private network. Other names never lead there."""
    name = host.rpartition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return False


def approval_text(access: Access, *, name: str) -> Sequence[str]:
    """The sentences that are shown before an approval; one that says so if nothing is reached."""
    return sentences(access, name=name) or (f"{name} reaches nothing but its input.",)
