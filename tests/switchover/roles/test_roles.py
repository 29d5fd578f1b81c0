"""The table of roles: every pair, the safety law on every row, and the page that is drawn from it."""

from __future__ import annotations

import itertools

import pytest

from switchover.roles.table import TABLE, Event, Permissions, Role, permissions, step
from tools.role_diagram import PAGE, mermaid, page
from twinlog.errors import IllegalTransition, Refused

PAIRS = list(itertools.product(Role, Event))
WRITERS = {Role.ACTIVE, Role.DOWNGRADE_ACTIVE}


@pytest.mark.parametrize(("role", "event"), PAIRS)
def test_every_pair_is_in_the_table_or_refused(role: Role, event: Event) -> None:
    if (role, event) in TABLE:
        assert step(role, event) is TABLE[role, event]
        return
    with pytest.raises(IllegalTransition) as caught:
        step(role, event)
    assert isinstance(caught.value, Refused)
    assert caught.value.fields == {"role": role, "event": event}
    assert role in caught.value.message


def test_every_row_says_why_in_its_own_words() -> None:
    reasons = [transition.reason for transition in TABLE.values()]
    assert len(set(reasons)) == len(reasons)
    assert all(len(reason) > 20 and not reason.endswith(".") for reason in reasons)


def test_no_event_is_there_for_nothing() -> None:
    assert {event for _, event in TABLE} == set(Event)


def test_no_step_gives_and_takes_permissions_at_once() -> None:
    for (role, event), transition in TABLE.items():
        before, after = permissions(role), permissions(transition.role)
        gives = any(now and not then for then, now in zip(before, after, strict=True))
        takes = any(then and not now for then, now in zip(before, after, strict=True))
        assert not (gives and takes), (role, event)


def test_only_a_plan_opens_writes() -> None:
    for (role, event), transition in TABLE.items():
        if transition.role in WRITERS and role not in WRITERS | {Role.DRAINING}:
            assert role is Role.SWITCHING
            assert event in (Event.OPENED_SYNC, Event.OPENED_ASYNC)
        if transition.role is Role.DRAINING:
            assert role in WRITERS


def test_a_fenced_site_only_rejoins() -> None:
    assert [event for role, event in TABLE if role is Role.FENCED] == [Event.REJOIN_STARTED]
    for role in WRITERS | {Role.DRAINING}:
        assert step(role, Event.MET_HIGHER_EPOCH).role is Role.FENCED


def test_permissions_obey_the_law() -> None:
    for role in Role:
        writes, reads, accepts = permissions(role)
        assert not (writes and accepts)
        assert not (reads and accepts)
        assert reads or not writes
        assert writes == (role in WRITERS)
    assert permissions(Role.FENCED) == Permissions(writes=False, reads=False, accepts_shipped=False)


def test_every_role_can_be_reached_and_left() -> None:
    reached, todo = {Role.CLOSED}, [Role.CLOSED]
    while todo:
        at = todo.pop()
        for (role, _), transition in TABLE.items():
            if role is at and transition.role not in reached:
                reached.add(transition.role)
                todo.append(transition.role)
    assert reached == set(Role)
    assert {role for role, _ in TABLE} == set(Role)


def test_the_diagram_has_an_arrow_for_each_row() -> None:
    arrows = [line for line in mermaid().splitlines() if "-->" in line and "[*]" not in line]
    assert len(arrows) == len(TABLE)
    assert "    SWITCHING --> ACTIVE: opened_sync" in arrows


def test_the_page_is_drawn_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.role_diagram"
    assert mermaid() in page()
