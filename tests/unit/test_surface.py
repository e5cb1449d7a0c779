"""The rules of the surface that the conformance vectors leave open: pairs, windows, vocabulary, cost."""

from collections.abc import Sequence

import pytest

from surfacelog.errors import ContractError
from surfacelog.events import Draft, encode_line, read_event
from surfacelog.node import Plan
from surfacelog.pairs import OPEN_CALLS_CHARS_MAX, OPEN_CALLS_MAX
from surfacelog.session import draft
from surfacelog.surface import Surface
from tests.unit.acts import TOOL, assistant, header, image, log, offload, result, said, user


def put(surface: Surface, *drafts: Draft) -> list[Plan]:
    """Appends the drafts; each plan is taken back once, to see that this leaves no trace."""
    plans = []
    for offered in drafts:
        plan = surface.plan(read_event(encode_line(offered, surface.next_seq, 0)))
        before = (surface.nodes, dict(surface.open_calls), surface.message_count, surface.content_generation)
        surface.apply(plan)
        surface.revert(plan)
        assert before == (
            surface.nodes,
            dict(surface.open_calls),
            surface.message_count,
            surface.content_generation,
        )
        surface.apply(plan)
        plans.append(plan)
    return plans


def refused(surface: Surface, offered: Draft) -> str:
    """The code with which the draft is refused."""
    with pytest.raises(ContractError) as refusal:
        surface.plan(read_event(encode_line(offered, surface.next_seq, 0)))
    return refusal.value.code


def paired(*drafts: Draft) -> Surface:
    surface = Surface(checks="paired")
    put(surface, *drafts)
    return surface


def test_a_result_answers_an_open_call_once() -> None:
    surface = paired(assistant("a", "b"))
    assert surface.open_calls == {"a": 0, "b": 0}
    put(surface, result("b"))
    assert refused(surface, result("b")) == "call-unknown"
    assert refused(surface, result("c")) == "call-unknown"
    put(surface, result("a"))
    assert surface.open_calls == {}


def test_a_result_without_a_call_is_fine_when_pairs_are_not_checked() -> None:
    surface = Surface()
    put(surface, result("a"), assistant("a", "a"), result("a"), result("a"))
    assert surface.nodes == [0, 1, 2, 3]


def test_a_call_id_is_open_once() -> None:
    surface = paired(assistant("a"))
    assert refused(surface, assistant("a")) == "call-duplicate"
    assert refused(surface, assistant("b", "b")) == "call-duplicate"
    put(surface, result("a"), assistant("a"))
    assert surface.open_calls == {"a": 2}


def test_open_calls_are_bounded_where_they_are_kept() -> None:
    many = [f"c{number}" for number in range(OPEN_CALLS_MAX + 1)]
    surface = paired(assistant(*many[:1000]))
    assert refused(surface, assistant(*many[1000:])) == "calls-too-many"
    put(surface, assistant(*many[1000:-1]))
    assert len(surface.open_calls) == OPEN_CALLS_MAX
    assert refused(surface, assistant("d")) == "calls-too-many"
    put(surface, result("c0"), assistant("d"))
    assert refused(paired(), assistant("x" * OPEN_CALLS_CHARS_MAX, "y")) == "calls-too-many"


def test_calls_are_neither_kept_nor_bounded_when_pairs_are_not_checked() -> None:
    surface = Surface()
    put(surface, assistant(*map(str, range(5000))), assistant("x" * 100_000), result("1"))
    assert surface.open_calls == {}
    assert all(node.answers == -1 and not node.calls for node in surface.entries)


@pytest.mark.parametrize("end", ["step/end", "turn/end", "step/start", "turn/start"])
def test_the_end_of_a_step_drops_open_calls(end: str) -> None:
    surface = paired(assistant("a"), log(end))
    assert surface.open_calls == {}
    assert refused(surface, result("a")) == "call-unknown"
    put(surface, assistant("a"), result("a"))
    # The dead call of seq 0 does not stand in the way.
    put(surface, user(said("sum"), over=(0, 0)))


def test_a_replace_takes_a_call_with_all_its_results_or_not_at_all() -> None:
    surface = paired(user(said("u")), assistant("a", "b"), result("a"), result("b"), user(said("next")))
    assert refused(surface, user(said("s"), over=(1, 1))) == "pair-split"
    assert refused(surface, user(said("s"), over=(0, 2), sources=[0, 1, 2])) == "pair-split"
    assert refused(surface, user(said("s"), over=(3, 4))) == "pair-split"
    put(surface, user(said("s"), over=(1, 3), sources=[1, 2, 3]))
    assert surface.nodes == [0, 5, 4]


def test_a_replace_shadows_no_open_call() -> None:
    surface = paired(user(said("u")), assistant("a", "b"), result("a"))
    assert refused(surface, user(said("s"), over=(0, 2), sources=[0, 1, 2])) == "call-shadowed"
    put(surface, user(said("s"), over=(0, 0)))


def test_a_rewritten_result_keeps_its_pair() -> None:
    surface = paired(assistant("a"), result("a"), result_over(1))
    assert [node.answers for node in surface.entries] == [0, 0]
    assert refused(surface, user(said("s"), over=(2, 2))) == "pair-split"
    put(surface, user(said("s"), over=(0, 2), sources=[0, 2]))


def result_over(seq: int) -> Draft:
    return result("a", said("shorter"), over=seq)


def test_a_rewritten_assistant_message_with_the_same_calls_keeps_its_pair() -> None:
    surface = Surface("v0", checks="paired")
    put(surface, *_v0_round())
    assert [node.answers for node in surface.entries] == [0, 0]
    assert surface.nodes == [2, 1]


def _v0_round() -> Sequence[Draft]:
    first = assistant("a")
    again = draft(
        "assistant/message",
        {"message": {"role": "assistant", "content": [{"type": "tool-call", "id": "a"}]}},
        surface_op={"op": "replace", "start": 0, "end": 0},
        source_event_seqs=[0],
    )
    return first, result("a", contract="v0"), again


def test_an_unanswered_tool_result_of_v0_finds_its_call_in_the_block() -> None:
    surface = Surface("v0", checks="paired")
    put(surface, assistant("a"))
    assert refused(surface, result("b", contract="v0")) == "call-unknown"
    put(surface, result("a", contract="v0"))


def test_a_window_decides_as_the_whole_does() -> None:
    whole = paired(header(TOOL), user(image(), image()), assistant("a"), offload((1, [1])))
    window = Surface.restore(
        "v4",
        checks="paired",
        vocabulary=(),
        next_seq=whole.next_seq,
        replace_generation=whole.replace_generation,
        content_generation=whole.content_generation,
        nodes=whole.entries,
        open_calls=whole.open_calls,
        headers=whole.headers,
    )
    assert refused(window, offload((1, [1]))) == refused(whole, offload((1, [1]))) == "offload-already"
    for surface in (whole, window):
        put(surface, result("a"), offload((1, [0])), user(said("s"), over=(1, 1)))
    assert window.entries == whole.entries
    assert window.message_count == whole.message_count
    assert window.content_generation == whole.content_generation == 3


def test_a_window_of_nothing_starts_at_its_base() -> None:
    surface = Surface(base_seq=7)
    with pytest.raises(ContractError, match="seq 7"):
        surface.plan(read_event(encode_line(user(), 0, 0)))
    put(surface, user(said("u")))
    assert surface.nodes == [7]


def test_the_vocabulary_adds_log_only_types() -> None:
    assert refused(Surface(), log("acme/note")) == "type-unknown"
    surface = Surface(vocabulary=("acme/note",))
    put(surface, log("acme/note"))
    assert surface.nodes == []
    with pytest.raises(ContractError) as refusal:
        surface.plan(read_event(b'{"type":"acme/note","seq":1,"time":0,"data":1,"surfaceOp":"append"}'))
    assert refusal.value.code == "surface-op-forbidden"


@pytest.mark.parametrize("kind", ["system/message", "developer/message", "image/offload"])
def test_v0_does_not_know_what_v4_added(kind: str) -> None:
    assert refused(Surface("v0"), log(kind)) == "type-unknown"


def test_v0_looks_into_no_request_header() -> None:
    put(Surface("v0"), log("request/header", {"header": {"system": "s", "tools": [], "adapterDefaults": {}}}))


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "text"},
        {"role": "assistant", "content": ["text"]},
        {"role": "assistant", "content": {"type": "text"}},
    ],
)
def test_a_message_without_a_list_of_blocks_is_refused(message: object) -> None:
    for kind, data in (
        ("assistant/message", {"message": message}),
        ("tool/result", {"message": message}),
        ("user/message", message),
    ):
        assert refused(Surface(), draft(kind, data, surface_op="append")) == "message-invalid"
    if message is not None:
        loose = Surface(content="trusted")
        put(loose, draft("assistant/message", {"message": message}, surface_op="append"))


def test_a_rewrite_is_compared_by_value() -> None:
    surface = Surface()
    put(surface, result("a", meta={"n": 1, "big": 2**70, "x": [True, None]}))
    assert refused(surface, result("a", over=0, meta={"n": True, "big": 2**70, "x": [True, None]})) == (
        "tool-rewrite-changes-more"
    )
    assert refused(surface, result("a", over=0, meta={"n": 1, "big": 2**70 + 1, "x": [True, None]})) == (
        "tool-rewrite-changes-more"
    )
    put(surface, result("a", image(), over=0, meta={"x": [True, None], "big": 2**70, "n": 1.0}))


def test_offloads_add_up_and_a_rewrite_starts_anew() -> None:
    surface = Surface()
    put(surface, result("a", image(), said("t"), image(), image()), offload((0, [2])), offload((0, [0, 1])))
    assert surface.entries[0].offloaded == (0, 1, 2)
    assert surface.replace_generation == 0
    assert surface.content_generation == 2
    put(surface, result("a", image(), over=0))
    assert surface.entries[0].offloaded == ()
    put(surface, offload((3, [0])))


def test_nodes_are_a_copy() -> None:
    surface = Surface()
    put(surface, user(said("u")))
    surface.nodes.clear()
    assert surface.nodes == [0]


def test_the_cost_of_an_append_does_not_grow_with_the_surface() -> None:
    class Watched(list[object]):
        copied = 0

        def copy(self) -> list[object]:
            Watched.copied += 1
            return super().copy()

        def __iter__(self):  # type: ignore[no-untyped-def]
            Watched.copied += 1
            return super().__iter__()

    surface = Surface()
    put(surface, *[user(said("u")) for _ in range(50)])
    surface._entries = Watched(surface._entries)  # type: ignore[assignment]  # noqa: SLF001
    places = surface._places  # noqa: SLF001
    places.seqs = Watched(places.seqs)  # type: ignore[assignment]
    for offered in (user(said("v")), assistant("a"), result("a"), log("turn/end")):
        surface.apply(surface.plan(read_event(encode_line(offered, surface.next_seq, 0))))
    assert Watched.copied == 0
    assert len(surface.nodes) == 53


def test_asking_whether_an_event_may_come_next_changes_nothing() -> None:
    surface = paired(user(said("hello")))
    for offered, code in ((user(said("hello")), ""), (result("nobody-called"), "call-unknown")):
        line = encode_line(offered, surface.next_seq, 0)
        try:
            surface.validate_next(read_event(line))
            told = ""
        except ContractError as error:
            told = error.code
        assert told == code
        assert (surface.nodes, surface.next_seq, surface.message_count) == ([0], 1, 1)
