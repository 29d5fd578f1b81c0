"""Bank transfers: money moves between accounts by a conditional batch, and none is ever made or lost.

A bank is one row that each transfer rewrites on condition of its version, and its accounts, which the same batch changes. So of
two transfers that saw the same moment one is done, and every moment shows the same sum.
"""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import Call, Condition, History, Mutation, Operation, Outcome, Row
from chaos.workloads.workload import final_violation, table

TABLE = "bank"
START = 100  # in each account
AMOUNT_MAX = 20
HISTORY_S = 3600


class Bank:
    """`banks` banks with `accounts` accounts each. Clients look at a whole bank, and then transfer what they saw there."""

    name = "bank"

    def __init__(self, random: Random, banks: int = 2, accounts: int = 4) -> None:
        self._random, self._banks, self._accounts = random, banks, accounts
        self._seen: dict[str, tuple[int, tuple[Row, ...]]] = {}
        self._values = 0
        checks = ("linearizable", "acknowledged", "phantom", "batches", "scans")
        self.tables = (table(TABLE, {"value": "string", "balance": "int64"}, checks, history_s=HISTORY_S),)

    def next(self, client: str) -> Operation:
        seen = self._seen.pop(client, None)
        if seen is None or self._random.random() < 0.2:
            bank = self._random.randrange(self._banks)
            return Operation("scan", TABLE, start=f"b{bank}", end=f"b{bank}~", snapshot=True)
        return self._transfer(client, *seen)

    def _transfer(self, client: str, bank: int, rows: tuple[Row, ...]) -> Operation:
        self._values += 1
        token, name = f"{client}-{self._values}", f"b{bank}"
        balances = {row.key: int(row.row["balance"]) for row in rows if row.key != name}
        changes = [Mutation("upsert", name, {"value": f"{token}/0", "balance": 0})]
        if not rows:
            balances = {f"{name}-{at}": START for at in range(self._accounts)}
            condition = Condition(exists=False)
        else:
            source, target = self._random.sample(sorted(balances), 2)
            amount = self._random.randint(0, min(AMOUNT_MAX, balances[source]))
            balances = {source: balances[source] - amount, target: balances[target] + amount}
            condition = Condition(version=next(row.version for row in rows if row.key == name))
        for at, (account, balance) in enumerate(sorted(balances.items()), 1):
            changes.append(Mutation("upsert", account, {"value": f"{token}/{at}", "balance": balance}))
        return Operation("conditional", TABLE, key=name, conditions=(condition,), mutations=tuple(changes))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind != "scan" or outcome.result != "ok" or operation.start is None:
            return
        if not outcome.rows or len(outcome.rows) == 1 + self._accounts:  # else it is torn, as the judge says
            self._seen[client] = int(operation.start[1:]), outcome.rows

    def judge(self, history: History) -> list[Violation]:
        """At each moment that a client saw, and at the end at each site, each bank has all its money and nobody owes any."""
        found: list[Violation] = []
        for call in history.calls:
            if _shows_one_moment(call) and call.outcome is not None:
                shown = {row.key: int(row.row["balance"]) for row in call.outcome.rows}
                found += self._wrong(shown, f"call {call.id} saw", (call.id,))
        for dump in history.dumps:
            stored = {key: int(row.row["balance"]) for key, row in dump.tables.get(TABLE, {}).items()}
            for bank in range(self._banks):
                of_it = {key: balance for key, balance in stored.items() if key.partition("-")[0] == f"b{bank}"}
                found += self._wrong(of_it, f"at the end site {dump.site} holds", ())
        return found

    def _wrong(self, balances: dict[str, int], where: str, calls: tuple[int, ...]) -> list[Violation]:
        if not balances:
            return []
        bank, total = min(balances), sum(balances.values())
        told = []
        if total != START * self._accounts:
            sentence = f"Bank {bank} has {START * self._accounts}, and {where} {total} in {len(balances) - 1} accounts."
            told.append(final_violation("P5", self.name, sentence, calls))
        owing = [account for account, balance in balances.items() if balance < 0]
        if owing:
            sentence = f"Account {owing[0]} owes money: {where} {balances[owing[0]]}."
            told.append(final_violation("P3", self.name, sentence, calls))
        return told


def _shows_one_moment(call: Call) -> bool:
    operation, outcome = call.operation, call.outcome
    of_a_bank = operation.table == TABLE and operation.kind == "scan" and operation.snapshot and operation.start is not None
    return of_a_bank and outcome is not None and outcome.result == "ok" and outcome.complete
