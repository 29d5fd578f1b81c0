"""Java's exceptions as errors of our tree: each names what was done to what, and the setting that is to be looked at.

What always holds: every exception of the client becomes a DfsError; one that is not known here keeps the client's own words.
Matched by class name along the causes, outermost first, and for a few by their text, because Hadoop throws plain IOExceptions
there. Source: twinlog/errors.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remote_log.dfs.hdfs.client import HdfsSettings
from twinlog.errors import DfsError, DfsExists, DfsNotFound, LeaseLost

_LEASE_LOST = ("LeaseExpiredException",)
_KINDS: dict[str, type[DfsError]] = {
    "FileAlreadyExistsException": DfsExists,
    "AlreadyBeingCreatedException": DfsExists,  # it exists, and is open
    "RecoveryInProgressException": DfsExists,  # it exists, and is being closed
    "FileNotFoundException": DfsNotFound,
    "NoSuchFileException": DfsNotFound,
    **dict.fromkeys(_LEASE_LOST, LeaseLost),
}
_UNREACHABLE = "the NameNode cannot be reached: check {url_name}, whether it runs, and the network between"
_VERSIONS = "client and NameNode speak different versions of Hadoop's RPC: this client is Hadoop 3.5; check {url_name}"
_REMEDIES: dict[str, str] = {
    "SafeModeException": "the NameNode is in safe mode: wait until its DataNodes have reported, or `hdfs dfsadmin"
                         " -safemode leave`",
    "NSQuotaExceededException": "the quota of names is used up: raise it with `hdfs dfsadmin -setQuota`",
    "DSQuotaExceededException": "the quota of space is used up: raise it with `hdfs dfsadmin -setSpaceQuota`",
    "QuotaExceededException": "a quota is used up: raise it with `hdfs dfsadmin`",
    "ParentNotDirectoryException": "a part of that path is a file: check the path in {url_name}",
    "PathIsNotDirectoryException": "a part of that path is a file: check the path in {url_name}",
    "StandbyException": "that NameNode is a standby: name the service instead of one NameNode in {url_name}, and give its"
                        " hdfs-site.xml by {section}.conf_dir",
    "KerberosAuthException": "Kerberos does not let us in: check {section}.kerberos_principal and {section}.kerberos_keytab",
    "SaslException": "the NameNode wants another login: check {section}.kerberos_principal, {section}.kerberos_keytab, and"
                     " that {section}.conf_dir holds that cluster's core-site.xml",
    "AccessControlException": "it is not permitted: let {user} own {url}, or check {section}.user or"
                              " {section}.kerberos_principal",
    "UnknownHostException": "there is no such host: check {url_name}; a name service needs its hdfs-site.xml, by"
                            " {section}.conf_dir",
    "ConnectException": _UNREACHABLE,
    "ConnectTimeoutException": _UNREACHABLE,
    "NoRouteToHostException": _UNREACHABLE,
    "SocketTimeoutException": _UNREACHABLE,
    "RpcException": "what listens there speaks no protocol of a NameNode that this client knows: check the port in"
                    " {url_name} (the NameNode's RPC port, not its web port) and the version of that Hadoop",
    "VersionMismatch": _VERSIONS,
    "RpcNoSuchProtocolException": _VERSIONS,
    "RpcNoSuchMethodException": _VERSIONS,
    "OutOfMemoryError": "Java's heap in this process is full: raise dfs.jvm_heap_bytes",
}
_TEXTS: dict[str, str] = {
    "SIMPLE authentication is not enabled": _REMEDIES["SaslException"],
    "Client cannot authenticate via": _REMEDIES["SaslException"],
    "fall back to SIMPLE auth": "{section} has no Kerberos, and the other DFS of this process has: if that is meant, set"
                                ' "ipc.client.fallback-to-simple-auth-allowed" = "true" in the options of both DFSs',
    "End of File Exception between local host": _UNREACHABLE,  # a NameNode that ended in the middle of a call
    "could only be written to 0": "no DataNode took the block: check that DataNodes run and have free space",
    "All datanodes": "every DataNode of the file failed: check that DataNodes run",
    "RPC response exceeds maximum": _REMEDIES["RpcException"],
    "Protocol message": _REMEDIES["RpcException"],
    "Server IPC version": _REMEDIES["VersionMismatch"],
}


def mapped(error: Any, doing: str, path: str, settings: HdfsSettings) -> DfsError:
    """`error`: a Java exception. `doing path` is what was tried, e.g. "list", "/shop/0/claims"."""
    kind: type[DfsError] = DfsError
    remedy, words = "", ""
    for name, text in _causes(error):
        words = words or text or name
        kind, remedy = _judged(name, text)
        if kind is not DfsError or remedy:
            break
    where = f"{path} below {settings.where}"
    user = settings.kerberos_principal or settings.user or "this process's user"
    hint = remedy.format(section=settings.section, url_name=settings.url_name, url=settings.url, user=user)
    return kind(f"cannot {doing} {where}: {words}" + (f"; {hint}" if hint else ""), path=path, url=settings.url,
                setting=settings.section)


def _judged(name: str, text: str) -> tuple[type[DfsError], str]:
    """Returns what an exception of that short class name and message is here, and the remedy, with {section}, {url}, {user}."""
    hint = next((hint for part, hint in _TEXTS.items() if part in text), "")
    return _KINDS.get(name, DfsError), hint or _REMEDIES.get(name, "")


def is_lease_lost(error: Any) -> bool:
    """True when the NameNode says that the lease is somebody else's, or the file gone."""
    return any(name in (*_LEASE_LOST, "FileNotFoundException") for name, _ in _causes(error))


def _causes(error: Any) -> Iterator[tuple[str, str]]:
    """(short class name, first line of the message) of `error` and its causes; of a RemoteException those of the far side."""
    seen = 0
    while error is not None and seen < 10:
        name = str(error.getClass().getName())
        if name.endswith("ipc.RemoteException") or name.endswith("ipc.RpcServerException"):
            name = str(error.getClassName() or name) if hasattr(error, "getClassName") else name
        message = error.getMessage()
        yield name.rpartition(".")[2].rpartition("$")[2], str(message).partition("\n")[0] if message is not None else ""
        error, seen = error.getCause(), seen + 1
