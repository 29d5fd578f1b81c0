"""The Java machine inside this process, and the classes of Hadoop's own client in it.

What always holds: it is started once, with a bounded heap, with the jars that come with PySpark and no others; it takes no
signals from Python, and is not shut down: that waits for Java calls that hang, and Python's own end aborts the process when
one returns into it. So a command ends by `end_process`; what must be durable is synced by then, and files left open are closed
by lease recovery; its log goes to standard error, warnings and above, as JSON
lines. Without a fitting Java, or without the packages, there is one ConfigError that says what to install.
Which Java and which jars these are is decided here alone: HDFS's own servers, which tests start, run with the same.
Source: reference hdfs-clients.md.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from twinlog.errors import ConfigError, words

JAVA_MIN = 17
_WHICH = f"Java {JAVA_MIN} or newer (Debian, Ubuntu: openjdk-{JAVA_MIN}-jre-headless)"
_JARS = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl",
         "jcl-over-slf4j", "snappy-java")
_LOG_LINE = '{"event": "%enc{%m}{JSON}", "level": "%p", "logger": "java.%c{1}", "timestamp": "%d{ISO8601}"}%n'
_ONE_CONTEXT = "org.apache.logging.log4j.core.selector.BasicContextSelector"
# JPype makes its side of a Java class, and of a method's parameters, at their first use, and a second thread that comes by just
# then ends the process (seen with 1.7.1: both DFSs of a starting site, and the Enum[] of EnumSet.of). So all that is used of it
# is met here, before there is a second thread: classes, constructors, these methods, the classes of what they take and give.
_MET = {
    "org.apache.hadoop.hdfs.DistributedFileSystem": (
        "close", "create", "delete", "exists", "getClient", "getConf", "getDefaultBlockSize", "getDefaultReplication",
        "getFileStatus", "isFileClosed", "listStatus", "mkdirs", "open", "recoverLease", "rename"),
    "org.apache.hadoop.hdfs.DFSClient": ("getClientName", "getFileInfo", "getNamenode"),
    "org.apache.hadoop.hdfs.protocol.ClientProtocol": ("fsync",),
    "org.apache.hadoop.hdfs.client.HdfsDataOutputStream": (
        "close", "getWrappedStream", "hasCapability", "hflush", "hsync", "write"),
    "org.apache.hadoop.hdfs.DFSOutputStream": ("getFileId",),
    "org.apache.hadoop.hdfs.client.HdfsDataInputStream": ("close", "getVisibleLength", "readFully"),
    "org.apache.hadoop.hdfs.protocol.HdfsNamedFileStatus": ("getFileId", "getLen", "getPath", "isDirectory"),
    "org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus": ("getFileId", "getLen", "getPath", "isDirectory"),
    "org.apache.hadoop.hdfs.HdfsConfiguration": ("addResource", "get", "set"),
    "org.apache.hadoop.fs.FileSystem": ("newInstance",),
    "org.apache.hadoop.fs.Path": ("getName", "getParent"),
    "org.apache.hadoop.fs.permission.FsPermission": ("applyUMask", "getFileDefault", "getUMask"),
    "java.util.EnumSet": ("of",),
    "java.util.RegularEnumSet": (),
    "java.nio.ByteBuffer": ("clear", "get"),
    "java.nio.DirectByteBuffer": ("clear", "get"),
    "java.lang.Class": ("getName",),
}
# What a call may end with, and the causes within it: which one is first met is chance, and a fault meets many threads at once.
_THROWN = {
    "java.lang": (
        "Throwable", "Exception", "RuntimeException", "Error", "ExceptionInInitializerError", "IllegalArgumentException",
        "IllegalStateException", "InterruptedException", "LinkageError", "NoClassDefFoundError", "NullPointerException",
        "OutOfMemoryError", "StackOverflowError", "UnsatisfiedLinkError", "UnsupportedOperationException"),
    "java.lang.reflect": ("InvocationTargetException", "UndeclaredThrowableException"),
    "java.io": ("EOFException", "FileNotFoundException", "IOException", "InterruptedIOException", "UncheckedIOException"),
    "java.net": (
        "BindException", "ConnectException", "NoRouteToHostException", "SocketException", "SocketTimeoutException",
        "UnknownHostException"),
    "java.nio.channels": (
        "AsynchronousCloseException", "ClosedByInterruptException", "ClosedChannelException", "UnresolvedAddressException"),
    "java.security": ("PrivilegedActionException",),
    "java.util.concurrent": (
        "CancellationException", "CompletionException", "ExecutionException", "RejectedExecutionException", "TimeoutException"),
    "javax.security.auth.login": ("LoginException",),
    "javax.security.sasl": ("SaslException",),
    "org.apache.hadoop.fs": (
        "ChecksumException", "ClosedIOException", "ClusterStorageCapacityExceededException", "FSError",
        "FileAlreadyExistsException", "ParentNotDirectoryException", "PathIsNotDirectoryException", "PathIOException",
        "UnresolvedLinkException"),
    "org.apache.hadoop.hdfs": ("BlockMissingException", "CannotObtainBlockLengthException"),
    "org.apache.hadoop.hdfs.protocol": (
        "AlreadyBeingCreatedException", "DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException",
        "UnresolvedPathException"),
    "org.apache.hadoop.hdfs.security.token.block": ("InvalidBlockTokenException",),
    "org.apache.hadoop.hdfs.server.namenode": ("NotReplicatedYetException", "SafeModeException"),
    "org.apache.hadoop.ipc": (
        "RemoteException", "RetriableException", "RpcException", "RpcNoSuchMethodException", "RpcNoSuchProtocolException",
        "RpcServerException", "StandbyException"),
    "org.apache.hadoop.io": ("MultipleIOException",),
    "org.apache.hadoop.net": ("ConnectTimeoutException",),
    "org.apache.hadoop.security": ("AccessControlException", "KerberosAuthException"),
    "org.ietf.jgss": ("GSSException",),
}
_THROWN_METHODS = ("getCause", "getClass", "getMessage")
_lock = threading.Lock()
_started: Java | None = None


class Java:
    """The running machine. Attributes are Java classes by their usual short names. `is_warm`: the classes that every call needs
    are loaded, for a probe has succeeded (dfs.py). A thread becomes one of Java's with its first call, and calls `leave` before
    it ends: else Java keeps it, with all that it knows by this thread, for as long as the process runs."""

    def __init__(self, jpype: Any) -> None:
        self.is_warm = False
        hadoop = "org.apache.hadoop."
        self.bytes = jpype.JArray(jpype.JByte)
        self.direct_buffer = jpype.nio.convertToDirectBuffer
        self.proxy = jpype.JProxy
        self.leave = jpype.JClass("java.lang.Thread").detach
        self.Throwable = jpype.JClass("java.lang.Throwable")
        self.URI = jpype.JClass("java.net.URI")
        self.EnumSet = jpype.JClass("java.util.EnumSet")
        self.Path = jpype.JClass(hadoop + "fs.Path")
        self.FileSystem = jpype.JClass(hadoop + "fs.FileSystem")
        self.FsPermission = jpype.JClass(hadoop + "fs.permission.FsPermission")
        self.CreateFlag = jpype.JClass(hadoop + "fs.CreateFlag")
        self.Rename = jpype.JClass(hadoop + "fs.Options$Rename")
        self.Configuration = jpype.JClass(hadoop + "conf.Configuration")
        self.HdfsConfiguration = jpype.JClass(hadoop + "hdfs.HdfsConfiguration")
        self.UserGroupInformation = jpype.JClass(hadoop + "security.UserGroupInformation")


def java(heap_bytes: int, setting: str = "dfs.jvm_heap_bytes") -> Java:
    """The one machine of this process, started at the first call with that heap. Blocks for some 0.3 s then.

    Raises ConfigError; `setting` names where the heap's size was given.
    """
    global _started
    with _lock:
        if _started is None:
            _started = _start(heap_bytes, setting)
        return _started


def end_process(code: int) -> None:
    """End this process at once with `code` if a Java machine runs in it; else return."""
    if _started is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _start(heap_bytes: int, setting: str) -> Java:
    jpype = _jpype()
    jars = client_jars()
    library = java_library()
    jpype.config.onexit = False  # its shutdown waits for calls that hang
    options = [f"-Xmx{heap_bytes}", "-Xrs", "-XX:+UseSerialGC", f"-Dlog4j2.contextSelector={_ONE_CONTEXT}"]
    try:
        jpype.startJVM(str(library), *options, classpath=[str(jar) for jar in jars], convertStrings=False)
    except (OSError, RuntimeError) as error:
        raise _unfit(f"Java at {library} cannot be started: {words(error)}",
                     f"check {setting} (now {heap_bytes}) against the memory that is free") from error
    _send_log_to_stderr(jpype)
    for name, methods in _MET.items():
        _meet(jpype, jpype.JClass(name), methods)
    for package, names in _THROWN.items():
        for name in names:
            _meet(jpype, jpype.JClass(f"{package}.{name}"), _THROWN_METHODS)
    return Java(jpype)


def _meet(jpype: Any, met: Any, methods: Sequence[str]) -> None:
    """Has JPype make all that a call of these methods, or of a constructor, needs."""
    for method in methods:
        getattr(met, method).matchReport()
    called = [one for one in met.class_.getMethods() if str(one.getName()) in methods]
    taken = [parameter for one in [*called, *met.class_.getConstructors()] for parameter in one.getParameterTypes()]
    for known in {*taken, *(one.getReturnType() for one in called)}:
        jpype.JClass(known)


def _jpype() -> Any:
    try:
        import jpype  # type: ignore[import-untyped]
        import jpype.config  # type: ignore[import-untyped]
        import jpype.nio  # type: ignore[import-untyped]
    except ImportError as error:
        raise _unfit("the package jpype1 is not installed", "install twinlog-server with its extra `hdfs`") from error
    return jpype


def pyspark_jars() -> Path:
    """The folder of all jars that come with PySpark. Raises ConfigError."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise _unfit("the package pyspark, whose jars hold Hadoop's client, is not installed",
                     "install twinlog-server with its extra `hdfs`")
    return Path(spec.submodule_search_locations[0]) / "jars"


def client_jars(more: Sequence[str] = ()) -> list[Path]:
    """Hadoop's client and what it needs, out of PySpark, and `more` by their names without versions. Raises ConfigError."""
    folder = pyspark_jars()
    found = []
    for name in (*_JARS, *more):
        jars = sorted(folder.glob(f"{name}-[0-9]*.jar"))
        if not jars:
            raise _unfit(f"{folder} has no {name} jar", "install the pyspark that requirements/ pins")
        found.append(jars[-1])
    return found


def java_library() -> Path:
    """libjvm of JAVA_HOME, or of the Java that this machine has. Raises ConfigError, also when it is too old."""
    jpype = _jpype()
    try:
        library = Path(jpype.getDefaultJVMPath()).resolve()
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException, OSError, ValueError) as error:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, and holds no Java" if home else "no Java was found on this machine"
        raise _unfit(where, f"install {_WHICH}, or set JAVA_HOME to where it is") from error
    check_version(library)
    return library


def java_program() -> Path:
    """The command `java` that belongs to `java_library`. Raises ConfigError."""
    library = java_library()
    for folder in library.parents[:3]:  # Java's home, above lib/server; not the machine's own bin
        program = folder / "bin" / "java"
        if program.is_file():
            return program
    raise _unfit(f"Java at {library} has no command `java`", f"install {_WHICH}, or set JAVA_HOME to one")


def check_version(library: Path) -> None:
    """By the file `release` beside the library's folder; a Java without that file is taken as it is. Raises ConfigError."""
    for folder in library.parents:
        release = folder / "release"
        if release.is_file():
            break
    else:
        return
    values = dict(line.split("=", 1) for line in release.read_text(encoding="utf-8").splitlines() if "=" in line)
    version = values.get("JAVA_VERSION", "").strip('"')
    parts = version.removeprefix("1.").split(".")
    if parts[0].isdecimal() and int(parts[0]) < JAVA_MIN:
        raise _unfit(f"Java at {folder} is {version}, too old for Hadoop's client",
                     f"install {_WHICH}, or set JAVA_HOME to one")


def _send_log_to_stderr(jpype: Any) -> None:
    log4j = "org.apache.logging.log4j."
    level = jpype.JClass(log4j + "Level")
    builder = jpype.JClass(log4j + "core.config.builder.api.ConfigurationBuilderFactory").newConfigurationBuilder()
    target = jpype.JClass(log4j + "core.appender.ConsoleAppender$Target").SYSTEM_ERR
    layout = builder.newLayout("PatternLayout").addAttribute("pattern", _LOG_LINE).addAttribute("alwaysWriteExceptions", False)
    builder.add(builder.newAppender("stderr", "CONSOLE").addAttribute("target", target).add(layout))
    builder.add(builder.newLogger("org.apache.hadoop.util.NativeCodeLoader", level.ERROR))  # it is never there
    builder.add(builder.newRootLogger(level.WARN).add(builder.newAppenderRef("stderr")))
    jpype.JClass(log4j + "core.config.Configurator").reconfigure(builder.build(False))


def _unfit(problem: str, remedy: str) -> ConfigError:
    message = f"HDFS needs Java {JAVA_MIN} or newer, and its client: {problem}; {remedy}"
    return ConfigError(message, faults=[{"file": "", "key": "dfs.*.kind", "problem": problem, "allowed": remedy}])
