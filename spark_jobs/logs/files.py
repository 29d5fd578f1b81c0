"""The files of a log, and the reading of their bytes: a folder of this machine, or one on HDFS through WebHDFS.

A log is the folder of a WAL (files `<epoch>-<index>`), or one of a remote log (`claims`, and a folder for each epoch with files
`<wal-name>.<n>`), as storage/log/segment.py and remote_log/layout.py name them.
What always holds: a place is picklable and opens nothing by itself, so executors make their own client; segments are listed
in the order in which they were made; what is no segment is left alone; a wrong place is an error that names the option. Keys
are given by reference alone, and read where they are needed: no option, plan or pickle holds one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from remote_log.layout import RemoteLayout
from storage.log.encryption import Keyring, SegmentCipher, log_keys
from storage.log.segment import (
    HEADER_BYTES_MAX,
    cipher_of,
    commonest,
    pairs_named,
    parse_header,
    parse_remote_name,
    parse_wal_name,
)
from twinlog.errors import ConfigError, DfsError, InvalidInput, KeyUnavailable, LogError, NotFound, reason, words
from twinlog.wire.home_paths import expanded

PATH, WEBHDFS, USER, KEYS = "path", "webhdfs", "user", "encryption_keys"  # options of the read
CLAIMS = "claims"
WEB_PORT = 9870  # of a NameNode, where Hadoop has it when nobody says otherwise
TIMEOUT_S = 30.0
READ_BYTES = 1 << 20
_HINTS_MAX = 20  # folders below a wrong one that are looked into
_HEADS_MAX = 32  # headers that are read to learn whose log it is


class Entry(NamedTuple):
    name: str
    length: int  # of an open file on HDFS: without its last block
    is_folder: bool


class Store(Protocol):
    """Raises FileNotFoundError, NotADirectoryError, OSError; DfsError where HDFS does not answer."""

    def list(self, folder: str) -> list[Entry]: ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Fewer bytes where the file ends."""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """Folder of a log. `webhdfs`: addresses of NameNodes, separated by commas; empty: a folder of this machine. `keys`:
    references to the keys of an encrypted one, as in a site's file, separated by commas."""

    path: str
    webhdfs: str = ""
    user: str = ""
    keys: str = ""

    def store(self) -> Store:
        return _webhdfs(self.webhdfs, self.user) if self.webhdfs else LocalStore()

    @property
    def options(self) -> dict[str, str]:
        """Returns the options of a read of this place."""
        return {PATH: self.path, WEBHDFS: self.webhdfs, USER: self.user, KEYS: self.keys}

    def keyring(self) -> Keyring:
        """Raises InvalidInput."""
        return _keyring(self.keys)

    def cipher(self, store: Store, name: str) -> SegmentCipher | None:
        """Returns what opens a segment's frames; None: they are plain. Raises BrokenHeader, KeyUnavailable, as the store."""
        header = parse_header(store.read(f"{self.folder.rstrip('/')}/{name}", 0, HEADER_BYTES_MAX))
        return cipher_of(header, self.keyring(), self.file(name))

    @property
    def folder(self) -> str:
        """As the store wants it."""
        return (urlsplit(self.path).path if self.webhdfs else self.path).rstrip("/") or "/"

    def file(self, name: str) -> str:
        """Path of a segment for messages and findings."""
        return f"{self.path.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file. `name`: below the log's folder. `ordinal`: its number in the listing, from 0. `epoch`: by its name. `pair`: the
    one that most segments of the log name; "": not looked at."""

    name: str
    ordinal: int
    epoch: int
    wal: str
    length: int
    pair: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """`kind` is empty where the folder is."""

    place: LogFolder
    kind: Literal["wal", "remote", ""]
    segments: tuple[Segment, ...]


def place_of(options: Mapping[str, str]) -> LogFolder:
    """The place that the options of a read name. Raises InvalidInput."""
    path = options.get(PATH, "")
    if not path:
        raise InvalidInput(f"the option {PATH} is missing: the folder of a WAL, or of one log of a remote log (FOLDER or hdfs://...)")
    address = urlsplit(path)
    if address.scheme not in ("", "file", "hdfs"):
        raise InvalidInput(f"the option {PATH} is {path!r}: a folder or an hdfs:// address is wanted")
    if address.scheme != "hdfs":
        return LogFolder(address.path if address.scheme else path, keys=options.get(KEYS, ""))
    web = options.get(WEBHDFS, "")
    if not web and not address.hostname:
        raise InvalidInput(f"the option {PATH} is {path!r}, which names no host: give the option {WEBHDFS}")
    return LogFolder(path, web or f"http://{address.hostname}:{WEB_PORT}", options.get(USER, ""), options.get(KEYS, ""))


@lru_cache
def _keyring(references: str) -> Keyring:
    """Returns the keys of this process: an executor resolves the references by itself."""

    def resolved(reference: str) -> str:
        scheme, _, name = reference.partition(":")
        if scheme == "env":
            if name not in os.environ:
                raise ValueError(f"refers to the environment variable {name}, which is not set")
            return os.environ[name]
        try:
            with open(expanded(name, KEYS), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"refers to the file {name}, which cannot be read: {words(error)}") from error

    try:
        named = [part.strip() for part in references.split(",") if part.strip()]
        return Keyring(f"the option {KEYS} (an audit takes it from the site's file)", log_keys(named, resolved))
    except ValueError as error:
        raise InvalidInput(f"the option {KEYS} {words(error)}") from error


def list_log(place: LogFolder) -> Log:
    """The segments there are now. Raises InvalidInput for a place that is no log, DfsError."""
    store = place.store()
    entries = _listed(store, place)
    found = sorted(entry.name for entry in entries if not entry.is_folder and parse_wal_name(entry.name) is not None)
    lengths = {entry.name: entry.length for entry in entries}
    if found:
        return Log(place, "wal", _wal_segments(found, lengths))
    epochs = sorted(entry.name for entry in entries if entry.is_folder and RemoteLayout.parse_epoch(entry.name) is not None)
    if epochs or any(entry.name == CLAIMS and entry.is_folder for entry in entries):
        return Log(place, "remote", _remote_segments(store, place, epochs))
    if entries:
        held = f"it holds {entries[0].name!r}{_hint(store, place, entries)}"
        raise InvalidInput(f"{place.path} (option {PATH}) is the folder of no log: {held}")
    return Log(place, "", ())


def whole_log(place: LogFolder) -> Log:
    """As `list_log`, of a log that must not be empty. Raises NotFound and KeyUnavailable too."""
    log = list_log(place)
    if not log.segments:
        what = "is empty" if not log.kind else "is a remote log without any segment"
        raise NotFound(f"{place.path} (option {PATH}) {what}: there is nothing to read")
    heads = dict(_heads(log))
    for name, head in heads.items():  # at once, and not by the first task
        try:
            cipher_of(parse_header(head), place.keyring(), place.file(name))
        except KeyUnavailable:
            raise
        except LogError:  # a broken header, or one of another release: the audit's to say
            continue
    pair = commonest(pairs_named(heads.values()))
    return replace(log, segments=tuple(replace(segment, pair=pair) for segment in log.segments))


def _heads(log: Log) -> Iterator[tuple[str, bytes]]:
    """Names and headers of some segments, evenly over the log; what cannot be read is the audit's to say."""
    store, step = log.place.store(), -(-len(log.segments) // _HEADS_MAX)
    for segment in log.segments[::step]:
        with suppress(OSError, DfsError):
            yield segment.name, store.read(f"{log.place.folder.rstrip('/')}/{segment.name}", 0, HEADER_BYTES_MAX)


def _wal_segments(names: Sequence[str], lengths: Mapping[str, int]) -> tuple[Segment, ...]:
    found = []
    for ordinal, name in enumerate(names):
        parsed = parse_wal_name(name)
        assert parsed is not None
        found.append(Segment(name, ordinal, parsed[0], name, lengths[name]))
    return tuple(found)


def _remote_segments(store: Store, place: LogFolder, epochs: Sequence[str]) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for epoch in epochs:
        try:
            entries = sorted(store.list(f"{place.folder}/{epoch}"))
        except FileNotFoundError:
            continue  # trimmed meanwhile
        for entry in entries:
            parsed = parse_remote_name(entry.name)
            if parsed is not None and not entry.is_folder:
                found.append(Segment(f"{epoch}/{entry.name}", len(found), int(epoch), parsed[0], entry.length))
    return tuple(found)


def _listed(store: Store, place: LogFolder) -> list[Entry]:
    try:
        return sorted(entry for entry in store.list(place.folder) if not entry.name.startswith("."))
    except FileNotFoundError:
        raise InvalidInput(f"{place.path} (option {PATH}) is not there: correct the path") from None
    except NotADirectoryError:
        raise InvalidInput(f"{place.path} (option {PATH}) is a file: give the folder that holds the log's segments") from None
    except OSError as error:
        raise InvalidInput(f"{place.path} (option {PATH}) cannot be listed: {reason(error)}") from error


def _hint(store: Store, place: LogFolder, entries: Sequence[Entry]) -> str:
    """Returns a hint at the log that was perhaps meant."""
    for entry in [entry for entry in entries if entry.is_folder][:_HINTS_MAX]:
        try:
            below = store.list(f"{place.folder}/{entry.name}")
        except OSError:
            continue
        if any(each.name == CLAIMS or parse_wal_name(each.name) is not None for each in below):
            return f"; {place.file(entry.name)} is one"
    return ""


class LocalStore:
    def list(self, folder: str) -> list[Entry]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found.append(Entry(entry.name, entry.stat().st_size, entry.is_dir()))
                except FileNotFoundError:
                    continue  # deleted meanwhile
        return found

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            parts = []
            while length is None or length > 0:
                part = file.read() if length is None else file.read(length)
                if not part:
                    break
                parts.append(part)
                length = None if length is None else length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class WebHdfsStore:
    """Files on HDFS through WebHDFS: the first NameNode in `addresses` that answers is asked."""

    def __init__(self, addresses: str, user: str) -> None:
        try:
            from hdfs.client import InsecureClient  # type: ignore[import-untyped]
        except ImportError as error:
            raise ConfigError("HDFS needs the package hdfs: install twinlog-server with its extra `hdfs`") from error
        self._addresses = addresses
        self._client = InsecureClient(addresses.replace(",", ";"), user=user or None, timeout=TIMEOUT_S)

    def list(self, folder: str) -> list[Entry]:
        def work() -> list[Entry]:
            found = self._client.list(folder, status=True)
            return [Entry(name, status["length"], status["type"] == "DIRECTORY") for name, status in found]

        return self._call(folder, work)  # type: ignore[no-any-return]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def work() -> bytes:
            # an open file's last block is not counted, and a NameNode takes no offset behind what it has counted
            known = self._client.status(path)["length"] if offset else 0
            begin = min(offset, max(0, known - 1))
            wanted = None if length is None else length + offset - begin
            with self._client.read(path, offset=begin, length=wanted, chunk_size=READ_BYTES) as pieces:
                return b"".join(pieces)[offset - begin :]

        return b"" if length == 0 else self._call(path, work)

    def _call(self, path: str, work: Any) -> Any:
        import requests
        from hdfs.util import HdfsError  # type: ignore[import-untyped]

        try:
            return work()
        except HdfsError as error:
            if error.exception == "FileNotFoundException" or "does not exist" in words(error):
                raise FileNotFoundError(path) from error
            if "is not a directory" in words(error):
                raise NotADirectoryError(path) from error
            raise self._failed(path, error) from error
        except (requests.RequestException, KeyError, ValueError) as error:
            raise self._failed(path, error) from error

    def _failed(self, path: str, error: Exception) -> DfsError:
        first_line = words(error).partition("\n")[0]
        return DfsError(
            f"{path} cannot be read by WebHDFS at {self._addresses}: {first_line}; check the options {PATH} and {WEBHDFS}, and "
            "that DataNodes can be reached from here", path=path,
        )


@lru_cache(maxsize=8)
def _webhdfs(addresses: str, user: str) -> WebHdfsStore:
    """One client, and so one pool of connections, for each cluster in a process."""
    return WebHdfsStore(addresses, user)
