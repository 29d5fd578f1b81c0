"""Finds what an Arrow IPC stream will become from what its messages declare, before anything of it is decompressed.

A compressed buffer begins with its length once decompressed, which Arrow allocates unseen: 165 KiB declared 2.1 GB. So the
messages' metadata, flatbuffers, are read here, as far as that takes: the tables RecordBatch and DictionaryBatch.
What always holds: the sum counts each buffer as often as an array refers to it.
This module is pure.
"""

from __future__ import annotations

from struct import Struct, error

import pyarrow as pa  # type: ignore[import-untyped]

from twinlog.errors import MalformedBody, TooLarge, words

_I64, _I32, _U32, _U16 = Struct("<q"), Struct("<i"), Struct("<I"), Struct("<H")
_DICTIONARY, _RECORDS = 2, 3  # of MessageHeader
_HEADER_TYPE, _HEADER = 1, 2  # fields of Message
_DATA = 1  # of DictionaryBatch
_BUFFERS, _COMPRESSION = 2, 3  # of RecordBatch
_BUFFER_BYTES = 16  # a struct of offset and length


def check_declared_bytes(stream: bytes, bytes_max: int) -> None:
    """Raises TooLarge when the buffers of `stream` become more than `bytes_max`, MalformedBody when it cannot be said."""
    total = 0
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(stream))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.metadata is not None and message.body is not None:
            try:
                total += _declared(memoryview(message.metadata), memoryview(message.body))
            except (error, IndexError, ValueError) as fault:
                raise MalformedBody(f"the body is not a sound Arrow IPC stream: {words(fault)}") from None
        if total > bytes_max:
            raise TooLarge(f"the Arrow stream decodes to more than {bytes_max} bytes: send it in parts", bytes_max=bytes_max)


def _declared(metadata: memoryview, body: memoryview) -> int:
    """Returns the bytes that the buffers of one message become."""
    message = _U32.unpack_from(metadata, 0)[0]
    kind_at, header_at = _field(metadata, message, _HEADER_TYPE), _field(metadata, message, _HEADER)
    if not kind_at or not header_at or metadata[kind_at] not in (_DICTIONARY, _RECORDS):
        return 0
    batch = _indirect(metadata, header_at)
    if metadata[kind_at] == _DICTIONARY:
        data_at = _field(metadata, batch, _DATA)
        if not data_at:
            return 0
        batch = _indirect(metadata, data_at)
    buffers_at = _field(metadata, batch, _BUFFERS)
    if not buffers_at:
        return 0
    is_compressed = bool(_field(metadata, batch, _COMPRESSION))
    vector = _indirect(metadata, buffers_at)
    total = 0
    for number in range(_U32.unpack_from(metadata, vector)[0]):
        place = vector + 4 + number * _BUFFER_BYTES
        offset, length = _I64.unpack_from(metadata, place)[0], _I64.unpack_from(metadata, place + 8)[0]
        if offset < 0 or length < 0 or offset + length > len(body):
            raise ValueError("a buffer lies outside of its message")
        if is_compressed and length:
            declared = _I64.unpack_from(body, offset)[0]  # -1: this one is not
            total += declared if declared >= 0 else length
        else:
            total += length
    return total


def _field(data: memoryview, table: int, number: int) -> int:
    """Returns where a field of a flatbuffer's table lies; 0: it is absent."""
    entries = table - _I32.unpack_from(data, table)[0]
    if entries < 0:
        raise ValueError("a table without its fields")
    entry = 4 + 2 * number
    if entry >= _U16.unpack_from(data, entries)[0]:
        return 0
    offset: int = _U16.unpack_from(data, entries + entry)[0]
    return table + offset if offset else 0


def _indirect(data: memoryview, place: int) -> int:
    target: int = place + _U32.unpack_from(data, place)[0]
    return target
