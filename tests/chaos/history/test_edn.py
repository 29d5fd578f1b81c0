"""A history as EDN, as Jepsen's checkers read it."""

from __future__ import annotations

from chaos.history.edn import edn
from chaos.history.history import Call, Condition, History, Mutation, Operation, Outcome, Row, history_of

READ = Operation("read", "appends", key="l0")


def lines(*calls: Call) -> list[str]:
    return edn(history_of(calls)).splitlines()


def append(value: str) -> Operation:
    change = Mutation("upsert", "l0", {"value": value})
    return Operation("conditional", "appends", key="l0", conditions=(Condition(version=1),), mutations=(change,))


def test_appends_are_transactions_in_the_order_of_time() -> None:
    seen = Outcome("ok", rows=(Row("l0", {"value": "e1 e2"}, 7),))
    assert lines(Call(2, "c1", READ, 1.5, None, 2.0, seen), Call(1, "c0", append("e1 e2"), 1.0, None, 3.0, Outcome("ok"))) == [
        '{:index 0, :type :invoke, :process 0, :f :txn, :value [[:append "l0" "e2"]], :time 1000000000}',
        '{:index 1, :type :invoke, :process 1, :f :txn, :value [[:r "l0" nil]], :time 1500000000}',
        '{:index 2, :type :ok, :process 1, :f :txn, :value [[:r "l0" ["e1" "e2"]]], :time 2000000000}',
        '{:index 3, :type :ok, :process 0, :f :txn, :value [[:append "l0" "e2"]], :time 3000000000}',
    ]


def test_after_an_unknown_outcome_a_client_is_another_process() -> None:
    told = lines(
        Call(1, "c0", append("e1"), 1.0, None, 2.0, Outcome("unknown")), Call(2, "c0", append("e2"), 3.0, None, 4.0,
        Outcome("not_applied", error="precondition-failed")), Call(3, "c0", READ, 5.0, None, 6.0, Outcome("ok")),
    )
    assert [line.split(", ")[1:3] for line in told] == [
        [":type :invoke", ":process 0"], [":type :info", ":process 0"], [":type :invoke", ":process 1"],
        [":type :fail", ":process 1"], [":type :invoke", ":process 1"], [":type :ok", ":process 1"],
    ]


def test_rows_of_other_tables_are_keys_with_values() -> None:
    row = {"value": 'say "so"', "copy": 'say "so"'}
    write = Operation("write", "registers", mutations=(Mutation("upsert", "r1", row),))
    gone = Operation("write", "registers", mutations=(Mutation("delete", "r1"),))
    scan = Operation("scan", "bank")
    history = lines(
        Call(1, "c0", write, 1.0), Call(2, "c1", gone, 2.0),
        Call(3, "c2", scan, 3.0, None, 4.0, Outcome("ok", rows=(Row("b0", {"value": "t", "balance": 5}, 1),))),
    )
    assert ':value ["r1" "say \\"so\\""]' in history[0]
    assert ':value ["r1" nil]' in history[1]
    assert ':f :scan, :value {"b0" {"balance" 5, "value" "t"}}' in history[3]
    assert edn(History()) == ""
