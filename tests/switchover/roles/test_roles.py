"""The table of roles: every pair, the safety law on random walks, and the page that is drawn from it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchover.roles.table import TABLE, Effect, Event, Permissions, Role, permissions, step
from tools.role_diagram import PAGE, mermaid, page
from twinlog.errors import IllegalTransition, Refused

PAIRS = list(itertools.product(Role, Event))
WRITERS = {Role.ACTIVE, Role.DOWNGRADE_ACTIVE}
CLOSING = {Effect.CLOSE_WRITES, Effect.CLOSE_READS, Effect.FAIL_PENDING, Effect.STOP_SHIPPING, Effect.REJECT_SHIPPED}
OPENING = {Effect.OPEN_WRITES, Effect.OPEN_READS, Effect.START_SHIPPING, Effect.ACCEPT_SHIPPED}


class Site:
    """The dumbest driver: flags that the effects turn on and off."""

    def __init__(self) -> None:
        self.role = Role.CLOSED
        self.writes = self.reads = self.accepts = self.ships = False
        self.mode = "none"

    def take(self, event: Event) -> None:
        transition = step(self.role, event)
        for effect in transition.effects:
            match effect:
                case Effect.OPEN_WRITES | Effect.CLOSE_WRITES:
                    self.writes = effect is Effect.OPEN_WRITES
                case Effect.OPEN_READS | Effect.CLOSE_READS:
                    self.reads = effect is Effect.OPEN_READS
                case Effect.ACCEPT_SHIPPED | Effect.REJECT_SHIPPED:
                    self.accepts = effect is Effect.ACCEPT_SHIPPED
                case Effect.START_SHIPPING | Effect.STOP_SHIPPING:
                    self.ships = effect is Effect.START_SHIPPING
                case Effect.ACKNOWLEDGE_SYNC | Effect.ACKNOWLEDGE_ASYNC:
                    self.mode = "sync" if effect is Effect.ACKNOWLEDGE_SYNC else "async"
                case Effect.FAIL_PENDING:
                    assert not self.writes, "pending writes are failed only once no new ones come in"
            self.check_flags()
        self.role = transition.role

    def check_flags(self) -> None:
        assert not (self.writes and self.accepts)
        assert not (self.reads and self.accepts)
        assert not (self.ships and self.accepts)
        assert not self.writes or (self.reads and self.mode != "none")


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


def test_no_event_and_no_effect_is_there_for_nothing() -> None:
    assert {event for _, event in TABLE} == set(Event)
    assert {effect for transition in TABLE.values() for effect in transition.effects} == set(Effect)


def test_what_closes_stands_before_what_opens() -> None:
    for transition in TABLE.values():
        closing = [i for i, effect in enumerate(transition.effects) if effect in CLOSING]
        opening = [i for i, effect in enumerate(transition.effects) if effect in OPENING]
        assert not closing or not opening or max(closing) < min(opening), transition


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


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_on_any_walk_the_effects_make_the_permissions(events: list[Event]) -> None:
    site = Site()
    for event in events:
        before = vars(site).copy()
        drained_as = site.mode
        try:
            site.take(event)
        except IllegalTransition:
            assert vars(site) == before
            continue
        assert permissions(site.role) == (site.writes, site.reads, site.accepts)
        assert site.ships == (site.role in WRITERS | {Role.DRAINING})
        if site.role is Role.DRAINING:
            assert site.mode == drained_as


@given(st.data())
def test_legal_walks_reach_deep_and_keep_the_law(data: st.DataObject) -> None:
    site = Site()
    for _ in range(data.draw(st.integers(1, 30))):
        legal = [event for role, event in TABLE if role is site.role]
        site.take(data.draw(st.sampled_from(legal)))
        assert permissions(site.role) == (site.writes, site.reads, site.accepts)


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
