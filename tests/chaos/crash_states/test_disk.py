"""The model of the disk: what each kind of sync makes durable, and which trees are left where none was."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from chaos.crash_states.calls import Call
from chaos.crash_states.disk import Disk
from chaos.crash_states.states import crash_states


def shown(data: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


def path(name: str) -> str:
    return shown(f"/r{name}".encode())


class Program:
    """Writes down calls, one after the other."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def call(self, name: str, *args: str, result: int = 0) -> int:
        self.calls.append(Call(name, args, result, len(self.calls), len(self.calls)))
        return result

    def open(self, name: str, flags: str = "O_RDWR|O_CREAT") -> str:
        return str(self.call("openat", "AT_FDCWD", path(name), flags, result=3 + len(self.calls)))

    def write(self, descriptor: str, data: bytes, offset: int = 0) -> None:
        self.call("pwrite64", descriptor, shown(data), str(len(data)), str(offset), result=len(data))

    def sync_folder(self, name: str = "") -> None:
        self.call("fsync", self.open(name, "O_RDONLY|O_DIRECTORY"))

    def left(self, most: int = 100_000, *, names_in_order: bool = False) -> list[dict[str, bytes | None]]:
        """The trees that a power loss behind the last call may leave."""
        disk = Disk("/r", "/marks", in_order="" if names_in_order else None)
        said = self._says()
        trees = [state.tree for state in crash_states(disk, [*self.calls, said], most, seed=1) if state.marks]
        return [{name: None if node is None else node[1] for name, node in tree.items()} for tree in trees]

    def _says(self) -> Call:
        at = len(self.calls)
        self.call("openat", "AT_FDCWD", shown(b"/marks"), "O_WRONLY", result=99)
        return Call("write", ("99", shown(b"now"), "3"), 3, at + 1, at + 1)


def distinct(trees: Iterable[dict[str, bytes | None]]) -> list[dict[str, bytes | None]]:
    """Each once, in an order of their own."""
    known: list[dict[str, bytes | None]] = []
    for tree in trees:
        if tree not in known:
            known.append(tree)
    return sorted(known, key=repr)


def test_a_file_without_its_folder_is_lost_and_a_name_without_its_file_is_empty() -> None:
    program = Program()
    file = program.open("/a")
    program.write(file, b"xy")
    assert distinct(program.left()) == distinct([{}, {"a": b""}, {"a": bytes(2)}, {"a": b"xy"}])
    program = Program()
    program.write(file := program.open("/a"), b"xy")
    program.call("fsync", file)
    assert distinct(program.left()) == [{"a": b"xy"}, {}]
    program = Program()
    program.write(program.open("/a"), b"xy")
    program.sync_folder()
    assert distinct(program.left()) == distinct([{"a": b""}, {"a": bytes(2)}, {"a": b"xy"}])


def test_a_write_tears_between_sectors_and_nowhere_else() -> None:
    program = Program()
    program.write(file := program.open("/a"), bytes(1024))
    program.call("fsync", file)
    program.sync_folder()
    program.write(file, b"x" * 600, 300)
    left = distinct(program.left())
    assert len(left) == 4
    assert {(tree["a"] or b"")[300:512] for tree in left} == {bytes(212), b"x" * 212}
    assert {(tree["a"] or b"")[512:900] for tree in left} == {bytes(388), b"x" * 388}


def test_a_write_that_syncs_makes_nothing_else_durable() -> None:
    for flags, name, more in (("O_RDWR|O_CREAT", "pwritev2", "RWF_DSYNC"), ("O_RDWR|O_CREAT|O_DSYNC", "pwritev2", "0")):
        program = Program()
        program.write(plain := program.open("/a"), bytes(1536))
        program.call("fsync", plain)
        program.sync_folder()
        program.write(plain, b"p", 1024)
        vector = f"[{{iov_base={shown(b'z')}, iov_len=1}}]"
        program.call(name, program.open("/a", flags), vector, "1", "0", more, result=1)
        left = distinct(program.left())
        assert [((tree["a"] or b"")[0], (tree["a"] or b"")[1024]) for tree in left] == [(ord("z"), 0), (ord("z"), ord("p"))]


def test_a_sync_does_not_cover_what_was_under_way_when_it_began() -> None:
    program = Program()
    file = program.open("/a")
    program.sync_folder()
    begun = len(program.calls)
    program.calls.append(Call("fsync", (file,), 0, begun, begun + 1))
    program.calls.append(Call("pwrite64", (file, shown(b"w"), "1", "0"), 1, begun, begun + 2))
    program.calls.append(Call("close", ("77",), 0, begun + 3, begun + 3))
    assert {tree["a"] for tree in program.left()} == {b"", b"\0", b"w"}


def test_a_rename_is_there_or_not_and_replaces_at_once() -> None:
    program = Program()
    for name, data in (("/old", b"1"), ("/new", b"2")):
        program.write(file := program.open(name), data)
        program.call("fsync", file)
    program.sync_folder()
    program.call("rename", path("/new"), path("/old"))
    assert distinct(program.left()) == [{"new": b"2", "old": b"1"}, {"old": b"2"}]


def test_of_a_rename_into_another_folder_the_old_name_never_goes_alone() -> None:
    program = Program()
    program.call("mkdir", path("/q"), "0777")
    program.call("fsync", program.open("/a"))
    program.sync_folder()
    program.call("rename", path("/a"), path("/q/b"))
    both, old, new = {"a": b"", "q": None, "q/b": b""}, {"a": b"", "q": None}, {"q": None, "q/b": b""}
    assert distinct(program.left()) == distinct([both, old, new])


def test_names_come_in_any_order_unless_the_folder_keeps_it() -> None:
    program = Program()
    for name in ("/a", "/b"):
        program.call("fsync", program.open(name))
    program.call("unlink", path("/a"))
    both, second, first = {"a": b"", "b": b""}, {"b": b""}, {"a": b""}
    assert distinct(program.left()) == distinct([{}, first, both, second])
    assert distinct(program.left(names_in_order=True)) == distinct([{}, first, both, second])
    program.sync_folder()
    program.call("fsync", program.open("/c"))
    program.call("rename", path("/b"), path("/d"))
    assert distinct(program.left(names_in_order=True)) == distinct([{"b": b""}, {"b": b"", "c": b""}, {"c": b"", "d": b""}])


def test_what_is_cut_off_never_comes_back_behind_a_longer_end() -> None:
    program = Program()
    program.write(file := program.open("/a"), b"x" * 4)
    program.call("fsync", file)
    program.sync_folder()
    program.call("ftruncate", file, "0")
    program.call("ftruncate", file, "4")
    assert {tree["a"] for tree in program.left()} == {b"x" * 4, b"", bytes(4)}


def test_a_choice_of_many_states_is_the_same_for_the_same_seed_and_keeps_the_ordered_ones() -> None:
    def written() -> Program:
        program = Program()
        file = program.open("/a")
        for at in range(12):
            program.write(file, bytes([at + 1]) * 512, 512 * at)
        return program

    left = written().left(most=64)
    assert left == written().left(most=64)
    ordered = [b"".join(bytes([at + 1]) * 512 for at in range(count)) for count in range(13)]
    assert {} in left
    assert len([one for one in ordered if {"a": one} in left]) >= 12


def test_bytes_sent_to_a_socket_change_no_file_and_into_a_file_they_are_refused() -> None:
    program = Program()
    target = program.open("/f")
    program.call("sendfile", "999", target, "NULL", "5", result=5)
    assert program.left() == [{}, {"f": b""}]
    program.call("sendfile", target, "999", "NULL", "5", result=5)
    with pytest.raises(ValueError, match="knows no sendfile"):
        program.left()


def test_names_without_what_was_not_synced() -> None:
    program, disk = Program(), Disk("/r", "/marks")
    synced, loose = program.open("/synced"), program.open("/loose")
    program.write(synced, b"kept")
    program.call("fsync", synced)
    program.write(synced, b"lost", 4)
    program.write(loose, b"lost")
    for call in program.calls:
        disk.begin(call)
        disk.end(call)
    assert {name: node and node[1] for name, node in disk.names_only().items()} == {"synced": b"kept", "loose": b""}
