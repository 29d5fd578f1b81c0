"""Documents: registers whose rows are large, so that a site needs memory for them."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.history.history import Mutation, Operation
from chaos.workloads.registers import Registers

BYTES = 20_000


class Documents(Registers):
    """The text of a row stands in `copy`, and behind it as many dots as make BYTES of it."""

    name = "documents"

    def next(self, client: str) -> Operation:
        operation = super().next(client)
        return replace(operation, mutations=tuple(_large(each) for each in operation.mutations))


def _large(mutation: Mutation) -> Mutation:
    if not mutation.row:
        return mutation
    return replace(mutation, row={**mutation.row, "copy": str(mutation.row["copy"]).ljust(BYTES, ".")})
