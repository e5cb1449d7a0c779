"""Stored logs: what is read, what a torn tail costs, and what is refused with its row."""

import json
from pathlib import Path

import pytest
import zstandard

from surfacelog.errors import LedgerError
from surfacelog.events import Event
from surfacelog.formats import StoredLog

EXAMPLES = Path(__file__).parents[2] / "examples"
HEADER = b'{"type":"session","version":4,"id":"s","createdAt":1760000000000}'
HEADER_0 = HEADER.replace(b'"version":4', b'"version":0')


def row(seq: int, text: str = "x") -> bytes:
    return json.dumps({"type": "todo/write", "seq": seq, "time": 1_760_000_000_000, "data": {"v": text}}).encode()


def frame(*rows: bytes, checksum: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(b"".join(found + b"\n" for found in rows))


def read(data: bytes) -> tuple[StoredLog, list[Event]]:
    log = StoredLog(data)
    return log, list(log)


def refusal(data: bytes) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        read(data)
    return caught.value


def test_plain_rows_and_zstd_frames_give_the_same_events() -> None:
    plain = read(HEADER + b"\n" + row(0) + b"\n" + row(1) + b"\n")
    framed = read(frame(HEADER) + frame(row(0), row(1)))
    assert plain[1] == framed[1]
    assert [event.seq for event in plain[1]] == [0, 1]
    assert plain[0].notices == framed[0].notices == []


def test_a_row_may_span_two_frames() -> None:
    text = HEADER + b"\n" + row(0) + b"\n" + row(1) + b"\n"
    cut = len(text) - 20
    compress = zstandard.ZstdCompressor().compress
    assert len(read(compress(text[:cut]) + compress(text[cut:]))[1]) == 2


def test_a_skippable_frame_is_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    assert len(read(frame(HEADER) + skippable + frame(row(0)))[1]) == 1


def test_only_a_newline_ends_a_row_and_the_data_keeps_its_bytes() -> None:
    data = '{"v":"a\u2028b\u2029c\u0085d", "n" : 1.0}'.encode()
    line = b'{"type":"todo/write","seq":0,"time":1,"data":' + data + b"}"
    for end in (b"\n", b"\r\n", b""):
        _, events = read(HEADER + b"\n" + line + end)
        assert bytes(events[0].data) == data


@pytest.mark.parametrize(
    "tail",
    [b'{"type":"todo/write","seq":2,"ti', b"\0" * 64, b"\xff\xfe", b'{"type":"todo/write","v":NaN}', b"", b"  "],
)
def test_an_unreadable_tail_is_left_out_and_reported_with_its_row(tail: bytes) -> None:
    log, events = read(b"\n".join([HEADER, row(0), row(1), tail]) + b"\n")
    assert [event.seq for event in events] == [0, 1]
    assert [(notice.code, notice.row) for notice in log.notices] == [("torn-row", 3)]


@pytest.mark.parametrize("damage", [b'{"type":"todo/write","seq":2,"ti', b"\0" * 64, b"\xff", b""])
def test_damage_with_a_good_row_behind_it_is_refused_with_its_row(damage: bytes) -> None:
    error = refusal(b"\n".join([HEADER, row(0), damage, row(1)]) + b"\n")
    assert (error.code, error.detail["row"]) == ("malformed", 2)


def test_recovering_leaves_out_good_rows_behind_damage_unless_a_turn_ends_there() -> None:
    rows = [HEADER, row(0), b"torn {", row(1), row(2)]
    log = StoredLog(b"\n".join(rows), recover=True)
    assert [event.seq for event in log] == [0]
    assert "2 good rows" in log.notices[0].text
    ended = b'{"type":"turn/end","seq":3,"time":1,"data":{}}'
    with pytest.raises(LedgerError):
        list(StoredLog(b"\n".join([*rows, ended]), recover=True))


def test_a_readable_row_that_is_not_allowed_is_refused_even_at_the_end() -> None:
    for line, code in [
        (b'{"type":"todo/write","seq":0,"time":1,"data":1e400}', "number-range"),
        (b'{"type":"todo/write","seq":0,"time":1,"data":-0}', "number-negative-zero"),
        (b'{"type":"todo/write","seq":0,"time":1,"data":' + b"[" * 600 + b"]" * 600 + b"}", "depth-exceeded"),
        (b'{"type":"todo/write","seq":0,"time":1,"data":1,"more":1}', "envelope-invalid"),
        (b'{"type":"todo/write","seq":true,"time":1,"data":1}', "envelope-invalid"),
        (b"[]", "envelope-invalid"),
        (b'{"type":"session","version":4,"id":"s","createdAt":1}', "envelope-invalid"),
        (row(1), "seq-not-contiguous"),
    ]:
        error = refusal(HEADER + b"\n" + line + b"\n")
        assert (error.code, error.detail["row"]) == (code, 1), line


def test_a_seq_that_comes_twice_is_refused_with_its_row() -> None:
    error = refusal(b"\n".join([HEADER, row(0), row(0)]))
    assert (error.code, error.detail["row"]) == ("seq-not-contiguous", 2)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"", "empty"),
        (row(0), "not a session header"),
        (b"\xef\xbb\xbf" + HEADER, "not a session header"),
        (HEADER.replace(b":4,", b":3,"), "version 3"),
        (HEADER.replace(b":4,", b":true,"), "version True"),
        (HEADER.replace(b'"id":"s",', b""), "id"),
        (HEADER.replace(b"1760000000000", b'"now"'), "createdAt"),
        (frame(HEADER)[:20], "cut off"),
        (b"\x28\xb5", "cut off"),
    ],
)
def test_a_log_without_a_readable_header_is_refused_and_says_why(header: bytes, said: str) -> None:
    error = refusal(header)
    assert error.code == "malformed"
    assert said in error.message
    assert error.detail["row"] == 0


def test_header_fields_without_a_place_are_reported_not_lost() -> None:
    header = HEADER[:-1] + b',"cwd":"/p","mood":{"a":1},"title":7,"checks":"paired"}'
    log, _ = read(header + b"\n" + row(0))
    assert log.header is not None
    assert (log.header.cwd, log.header.title, log.header.checks) == ("/p", None, "surface")
    texts = [notice.text for notice in log.notices]
    assert [text.split(" = ")[0] for text in texts] == [
        "the header field mood",
        "the header field title",
        "the header field checks",
    ]


def packed(kind: str, members: str, **data: object) -> bytes:
    texts = ["{\\", '"a"', ":1}"]
    body = {"turn": 1, "step": 2, "index": 3, "dt": [5, -2], **data, members: texts}
    return json.dumps({"type": kind, "seq0": 1, "time0": 100, "data": body}).encode()


@pytest.mark.parametrize(
    ("kind", "members", "extra", "chunk"),
    [
        ("text-chunks", "texts", {}, {"type": "text-delta", "index": 3, "text": ""}),
        ("reasoning-chunks", "texts", {}, {"type": "reasoning-delta", "index": 3, "text": ""}),
        (
            "tool-call-chunks",
            "args",
            {"id": "c", "name": "bash"},
            {"type": "tool-call-delta", "index": 3, "id": "c", "name": "bash", "argumentsDelta": ""},
        ),
        (
            "tool-call-chunks",
            "args",
            {"id": "c"},
            {"type": "tool-call-delta", "index": 3, "id": "c", "argumentsDelta": ""},
        ),
    ],
)
def test_a_packed_row_stands_for_one_event_a_member(
    kind: str, members: str, extra: dict[str, object], chunk: dict[str, object]
) -> None:
    log, events = read(b"\n".join([HEADER_0, row(0), packed(kind, members, **extra), row(4)]))
    assert [(event.type, event.seq, event.time) for event in events[1:4]] == [
        ("assistant/chunk", 1, 100),
        ("assistant/chunk", 2, 105),
        ("assistant/chunk", 3, 103),
    ]
    last = next(reversed(chunk))
    for event, text in zip(events[1:4], ["{\\", '"a"', ":1}"], strict=True):
        expected = {"turn": 1, "step": 2, "chunk": chunk | {last: text}}
        assert list(json.loads(bytes(event.data)).items()) == list(expected.items())
    assert (log.rows, log.packed, log.next_seq) == (3, (1, 3), 5)


def test_a_packed_text_keeps_an_escape_that_was_cut_in_half() -> None:
    line = (
        b'{"type":"text-chunks","seq0":0,"time0":1,"data":'
        rb'{"turn":1,"step":1,"index":0,"dt":[0],"texts":["\ud83e","\udd8a"]}}'
    )
    _, events = read(HEADER_0 + b"\n" + line)
    assert [
        bytes(event.data).endswith(text)
        for event, text in zip(events, [rb'"\ud83e"}}', rb'"\udd8a"}}'], strict=True)
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"dt": [0]},
        {"dt": [0, 0, 0]},
        {"dt": [0, 1.5]},
        {"turn": "1"},
        {"more": 1},
        {"texts": ["a", 1, "b"]},
        {"texts": [], "dt": []},
    ],
)
def test_a_packed_row_that_does_not_add_up_is_refused_with_its_row(data: dict[str, object]) -> None:
    body = {"turn": 1, "step": 1, "index": 0, "dt": [0, 0], "texts": ["a", "b", "c"], **data}
    line = json.dumps({"type": "text-chunks", "seq0": 0, "time0": 1, "data": body}).encode()
    error = refusal(HEADER_0 + b"\n" + line)
    assert (error.code, error.detail["row"]) == ("malformed", 1)


def test_a_plain_log_and_what_its_packed_rows_stand_for_are_bounded_too() -> None:
    members = [""] * 1000
    body = {"turn": 1, "step": 1, "index": 0, "dt": [0] * 999, "texts": members}
    line = json.dumps({"type": "text-chunks", "seq0": 0, "time0": 1, "data": body}).encode()
    data = HEADER_0 + b"\n" + line
    unfolded = sum(len(event.data) for event in StoredLog(data))
    assert unfolded > 5 * len(data)
    assert len(list(StoredLog(data, output_bytes_max=unfolded))) == 1000
    # What all members share is in the row once.
    named = data.replace(b'"index": 0', b'"index": 0, "id": "%s"' % (b"i" * 10_000))
    named = named.replace(b"text-chunks", b"tool-call-chunks").replace(b'"texts"', b'"args"')
    assert 10_000_000 > unfolded + len(named)
    for large, bound in ((data, unfolded - 1), (data, len(data) - 1), (named, 10_000_000)):
        with pytest.raises(LedgerError) as caught:
            list(StoredLog(large, output_bytes_max=bound))
        assert caught.value.code == "too-large"


def test_packed_rows_belong_to_the_older_format_only() -> None:
    assert refusal(b"\n".join([HEADER, row(0), packed("text-chunks", "texts")])).detail["row"] == 2


def test_a_cut_frame_gives_the_rows_it_still_holds_and_a_report() -> None:
    whole = frame(HEADER) + frame(row(0), row(1))
    torn = frame(*(row(seq, "x" * 2000 + str(seq)) for seq in range(2, 500)))
    log, events = read(whole + torn[:-40])
    assert 2 <= len(events) < 500
    assert [event.seq for event in events] == list(range(len(events)))
    assert log.notices[-1].code == "torn-frame"


def test_bytes_behind_the_last_frame_are_a_torn_tail() -> None:
    log, events = read(frame(HEADER) + frame(row(0)) + b"\0" * 100)
    assert len(events) == 1
    assert [notice.code for notice in log.notices] == ["torn-frame"]


def test_a_frame_with_a_wrong_checksum_gives_nothing() -> None:
    bad = bytearray(frame(row(1), row(2)))
    bad[-1] ^= 1
    log, events = read(frame(HEADER) + frame(row(0)) + bytes(bad))
    assert [event.seq for event in events] == [0]
    assert "checksum" in log.notices[0].text


def test_a_damaged_frame_with_a_whole_one_behind_it_is_refused_with_its_row() -> None:
    middle = bytearray(frame(row(1), row(2)))
    middle[-1] ^= 1
    error = refusal(frame(HEADER) + frame(row(0)) + bytes(middle) + frame(row(3)))
    assert (error.code, error.detail["row"]) == ("malformed", 2)


def test_a_cut_frame_that_others_were_written_behind_is_refused() -> None:
    middle = frame(*(row(seq, "x" * 3000 + str(seq)) for seq in range(1, 100)))
    error = refusal(frame(HEADER) + frame(row(0)) + middle[: len(middle) // 2] + frame(row(3)))
    assert error.code == "malformed"


def test_a_log_that_inflates_beyond_the_limit_is_refused() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(b"\n" * (8 << 20))
    with pytest.raises(LedgerError) as caught:
        list(StoredLog(frame(HEADER) + bomb, output_bytes_max=1 << 20))
    assert caught.value.code == "too-large"


@pytest.mark.parametrize("name", ["resumed", "format0"])
def test_a_log_cut_at_any_byte_gives_a_prefix_or_a_clear_refusal(name: str) -> None:
    data = (EXAMPLES / f"{name}.jsonl.zst").read_bytes()
    whole = read(data)[1]
    before = 0
    refused = []
    for cut in range(0, len(data), 61):
        try:
            log, events = read(data[:cut])
        except LedgerError as error:
            refused.append((error.code, error.detail["row"], before))
            continue
        assert events == whole[: len(events)]
        assert len(events) >= before
        assert log.notices or len(events) in (0, 64, 128, len(whole)) or data[cut:].startswith(b"\x28\xb5\x2f\xfd")
        before = len(events)
    # Only a log that is cut inside its header has nothing to give.
    assert set(refused) == {("malformed", 0, 0)}


def test_a_plain_log_cut_at_any_byte_gives_a_prefix() -> None:
    text = b"\n".join([HEADER, *(row(seq) for seq in range(5))]) + b"\n"
    whole = read(text)[1]
    for cut in range(len(HEADER), len(text)):
        _, events = read(text[:cut])
        assert events == whole[: len(events)]
        assert len(events) >= text[:cut].count(b"\n") - 1


def test_a_flipped_byte_anywhere_is_noticed_or_harmless() -> None:
    data = (EXAMPLES / "resumed.jsonl.zst").read_bytes()
    whole = read(data)[1]
    for place in range(0, len(data), 97):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        try:
            log, events = read(bytes(flipped))
        except LedgerError:
            continue
        assert events == whole[: len(events)]
        assert log.notices or len(events) == len(whole)
