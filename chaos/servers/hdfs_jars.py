"""The parts of a real HDFS on this machine: Java and the client's jars (remote_log/dfs/hdfs/jvm.py), and one for the
servers.

What always holds: the servers' jar enters the cache only when its SHA-256 is the one pinned here, and whole
or not at all. Where it is fetched from is the machine's affair, so no address stands here: the variable MAVEN_MIRROR_URL,
else a mirror of `central` in Maven's settings (its user's, then its own), else the public repository that PySpark's own
Ivy is set up with, which is read from Ivy's jar.
Source: docs/decisions/2026-11-21-a-real-hdfs-for-tests.md.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import httpx

from remote_log.dfs.hdfs import jvm as hdfs_jvm
from twinlog.errors import ConfigError, words

VERSION = "3.5.0"  # that of the client in PySpark's jars
SHA256 = "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
ARTIFACT = f"org/apache/hadoop/hadoop-client-minicluster/{VERSION}/hadoop-client-minicluster-{VERSION}.jar"
ADDRESS_VARIABLE = "MAVEN_MIRROR_URL"
CACHE_VARIABLE = "TWINLOG_CACHE"
FETCH_DEADLINE_S = 300.0
_SERVERS_NEED = ("log4j-1.2-api",)  # beside what the client needs
_IVY_DEFAULTS = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
_MIRRORS_OF_CENTRAL = {"central", "*", "external:*"}
_FETCH = "`python -m chaos hdfs --fetch`"


def client_jars() -> list[Path]:
    """Raises ConfigError when PySpark is not installed, or is one with another Hadoop."""
    jars = hdfs_jvm.client_jars(_SERVERS_NEED)
    if not any(path.name == f"hadoop-client-api-{VERSION}.jar" for path in jars):
        name = f"hadoop-client-api-{VERSION}.jar"
        raise ConfigError(f"{jars[0].parent} should hold {name}, and holds {jars[0].name}: run `make setup`")
    return jars


def class_path() -> list[Path]:
    """Returns the class path of the servers and of Hadoop's tools. Raises ConfigError that says how to get a missing part."""
    return [server_jar(), *client_jars()]


def server_jar() -> Path:
    path = _cached()
    if not path.exists():
        raise ConfigError(f"the HDFS servers' jar is not at {path}: {_FETCH} brings it (56 MB, once)")
    return path


def missing() -> str | None:
    """Returns the reason why no HDFS can be started on this machine; None when one can."""
    try:
        hdfs_jvm.java_program()
        class_path()
    except ConfigError as error:
        return error.message
    return None


def fetch() -> Path:
    """The servers' jar, downloaded into the cache unless it is there. Raises ConfigError."""
    target = _cached()
    if target.exists():
        return target
    base, origin = repository()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    partial, digest = Path(name), hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file, httpx.stream(
            "GET", f"{base.rstrip('/')}/{ARTIFACT}", follow_redirects=True, timeout=FETCH_DEADLINE_S
        ) as answer:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != SHA256:
            raise ConfigError(
                f"{target.name} from {origin} is not the file that is expected (SHA-256 {digest.hexdigest()}): it was not kept;"
                f" check that repository, or name another in {ADDRESS_VARIABLE}"
            )
        partial.replace(target)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"cannot fetch {target.name} from {origin}: {words(error)}; name a reachable Maven repository in {ADDRESS_VARIABLE}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return target


def repository() -> tuple[str, str]:
    """Base address of the Maven repository to fetch from, and who named it."""
    if named := os.environ.get(ADDRESS_VARIABLE):
        return named, ADDRESS_VARIABLE
    for settings in _maven_settings():
        if mirror := _mirror(settings):
            return mirror, str(settings)
    for jar in hdfs_jvm.pyspark_jars().glob("ivy-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            known = re.search(rb"https:/{2}[\w./-]+/maven2/", archive.read(_IVY_DEFAULTS))
        if known:
            return known.group().decode("ascii"), f"the public repository (as {jar.name} names it)"
    raise ConfigError(f"no Maven repository is known here: name one in {ADDRESS_VARIABLE}")


def _maven_settings() -> list[Path]:
    own = [Path(home, "conf") for home in (os.environ.get("MAVEN_HOME"), os.environ.get("M2_HOME")) if home]
    folders = [Path.home() / ".m2", *own, Path("/etc/maven")]
    return [path for folder in folders if (path := folder / "settings.xml").exists()]


def _mirror(settings: Path) -> str | None:
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigError(f"{settings} cannot be read: {error}; repair it, or set {ADDRESS_VARIABLE}") from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        of = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if of & _MIRRORS_OF_CENTRAL and "!central" not in of:
            return (mirror.findtext("{*}url") or "").strip() or None
    return None


def cache_folder() -> Path:
    """Returns the folder for what is fetched once and kept."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "twinlog"))


def _cached() -> Path:
    return cache_folder() / f"{SHA256[:12]}-{Path(ARTIFACT).name}"
