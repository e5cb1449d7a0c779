"""The operations of failure cases: what each one gives, as checks by the name of the expectation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gateway.cli.case_file import Case
from gateway.cli.case_forms import closer_form, verdict_check, words
from gateway.cli.outcome import Problem, compare
from gateway.cli.trial import Rules, Trial, fold_refusal, numbered, session_refusal, unknown_type
from surfacelog.errors import ContractError, LedgerError, ProtocolError
from surfacelog.events import Event, read_event
from surfacelog.fork import Fork, fork
from surfacelog.formats import StoredLog, line_of
from surfacelog.formats.rows import is_json
from surfacelog.inbox import inbox
from surfacelog.lifecycle import Nesting, report
from surfacelog.planner import last_window, legal_cuts
from surfacelog.repair import repair

__all__ = ["OPERATIONS", "Finding"]

Check = Callable[[Any], list[Problem]]
Refusal = tuple[int, LedgerError] | None


class Finding(msgspec.Struct, frozen=True):
    """`checks`: expectation name -> check of its value. `problems`: what must hold whatever a case expects."""

    checks: Mapping[str, Check]
    problems: list[Problem] = []


def _equals(name: str, got: Any) -> Check:
    return lambda expected: compare(name, expected, got)


def _state(trial: Trial) -> dict[str, Check]:
    folded = trial.folded()
    surface = trial.session.surface
    transcript = list(trial.session.transcript)
    return {
        "surface": _equals("surface", surface.nodes),
        "nodes": _equals("nodes", surface.nodes),
        "messages": _messages(trial),
        "transcript": lambda expected: compare(
            "transcript", expected, transcript if isinstance(expected, list) else len(transcript)
        ),
        "replaceGeneration": _equals("replaceGeneration", surface.replace_generation),
        "contentGeneration": _equals("contentGeneration", surface.content_generation),
        "replacements": lambda expected: compare(
            "replacements",
            expected,
            msgspec.to_builtins(folded.replacements) if isinstance(expected, list) else len(folded.replacements),
        ),
    }


def _messages(trial: Trial) -> Check:
    def check(expected: Any) -> list[Problem]:
        if expected and isinstance(expected, list) and isinstance(expected[0], dict):
            got: Any = [{"seq": seq, "message": message} for seq, message in trial.messages()]
        elif expected and isinstance(expected, list) and isinstance(expected[0], int):
            got = [seq for seq, _ in trial.messages()]
        else:
            got = trial.roles()
        return compare("messages", expected, got)

    return check


def _lifecycle(name: str, events: Iterable[Event], refused: Refusal) -> Check:
    """A log that does not fold does not pass the check of its nesting either."""
    findings = report(events)
    if findings:
        first = min(findings[0].index, refused[0]) if refused else findings[0].index
        return verdict_check(name, first, findings[0].text)
    return verdict_check(name, *_why(refused))


def _why(refused: Refusal) -> tuple[int | None, str]:
    return (None, "") if refused is None else (refused[0], str(refused[1]))


def _loaded(rules: Rules, lines: tuple[bytes, ...], events: list[Event]) -> dict[str, Check]:
    """What loading these lines gives."""
    in_session = session_refusal(lines, rules)
    in_fold = fold_refusal(lines, rules)
    queued = inbox(events)
    trial = Trial(rules)
    trial.session.append_lines(lines[: in_session[0] if in_session else len(lines)])
    return {
        **_state(trial),
        "fold": verdict_check("fold", *_why(in_fold)),
        "session": verdict_check("session", *_why(in_session)),
        "importable": verdict_check("importable", *_why(in_session)),
        "lifecycle": _lifecycle("lifecycle", events, in_session),
        "lifecycleOfLog": _lifecycle("lifecycleOfLog", events, in_session),
        "vocabulary": verdict_check("vocabulary", unknown_type(events, rules), "the type is not known"),
        "inbox": verdict_check(
            "inbox", min((fault.seq for fault in queued.faults), default=None), "it does not fit"
        ),
        "pendingInbox": _equals("pendingInbox", [item.id for item in queued.pending]),
        "closers": lambda expected: _closers(expected, repair(events, rules.contract)),
    }


def _load(case: Case) -> Finding:
    lines = tuple(_line(text, index) for index, text in enumerate(case.events))
    events = []
    for line in lines:
        try:
            events.append(read_event(line))
        except ContractError:
            # The session and the fold stop there too, and say so.
            break
    return Finding(_loaded(case.rules, lines, events))


def _line(text: bytes, seq: int) -> bytes:
    try:
        return numbered(text, seq)
    except ContractError:
        return text


def _load_lines(case: Case) -> Finding:
    """Reads rows as the client reads its own log; a header row among them is not needed."""
    events: list[Event] = []
    refused: Refusal = None
    rules = case.rules
    try:
        data = b"\n".join(case.lines)
        version = 0 if rules.contract == "v0" else 4
        log = StoredLog(data, header_required=False, version=version, recover=True)
        rules = msgspec.structs.replace(rules, contract=log.contract)
        events.extend(log)
    except LedgerError as error:
        refused = (error.detail.get("row", 0), error)
    checks = _loaded(rules, tuple(map(line_of, events)), events)
    if refused is not None:
        for name in ("importable", "session", "fold"):
            checks[name] = verdict_check(name, *_why(refused))
    checks["lines"] = verdict_check("lines", *_why(refused))
    checks["kept"] = _equals("kept", len(events))
    return Finding(checks)


def _append(case: Case) -> Finding:
    trial = _started(case)
    problems: list[Problem] = []
    for number in case.numbers:
        problems += _keeps_number(trial, number)
    appends = [_try(trial, text) for text in case.appends]
    texts = [_try(trial, text) for text in case.texts]
    checks = {
        **_as_log(trial),
        "appends": lambda expected: _each("appends", expected, appends),
        "rawAppends": lambda expected: _each("rawAppends", expected, texts),
    }
    if case.lines:
        stored = _load_lines(case).checks
        checks |= {name: stored[name] for name in ("lines", "kept", "importable")}
    return Finding(checks, problems)


def _as_log(trial: Trial) -> dict[str, Check]:
    """What loading the trial's own lines again gives."""
    return _loaded(trial.rules, tuple(trial.session.lines), list(trial.events()))


def _started(case: Case) -> Trial:
    trial = Trial(case.rules)
    for index, text in enumerate(case.events):
        try:
            trial.offer(text)
        except ContractError as error:
            raise ProtocolError(
                "bad-request", f"event {index} is refused before the case begins: {error}"
            ) from None
    return trial


def _keeps_number(trial: Trial, number: bytes) -> list[Problem]:
    """A JSON number is refused, or comes back byte for byte; tried in a session of its own."""
    apart = Trial(trial.rules)
    data = b'{"v":' + number + b"}"
    try:
        apart.offer(b'{"type":"todo/write","data":' + data + b"}")
    except ContractError:
        return []
    return compare("rawNumbers", data.decode(), bytes(apart.events()[0].data).decode())


def _try(trial: Trial, text: bytes) -> dict[str, Any]:
    if not is_json(text):
        return {"error": "json-invalid"}
    try:
        return {"ok": trial.offer(text)}
    except ContractError as error:
        return {"error": error.code}


def _each(name: str, expected: Any, got: list[dict[str, Any]]) -> list[Problem]:
    if not isinstance(expected, list) or len(expected) != len(got):
        return [Problem(name, expected, f"{len(got)} answers")]
    problems = []
    for index, (wanted, answer) in enumerate(zip(expected, got, strict=True)):
        if not _answers(wanted, answer):
            problems.append(Problem(f"{name}[{index}]", wanted, answer))
    return problems


def _answers(wanted: Any, answer: dict[str, Any]) -> bool:
    if isinstance(wanted, dict):
        return not compare("", wanted, answer)
    if wanted == "ok":
        return "ok" in answer
    if wanted == "unparsable":
        return answer.get("error") == "json-invalid"
    if wanted == "refuse":
        return "error" in answer
    return isinstance(wanted, str) and answer.get("error") == wanted.removeprefix("refuse:").removeprefix(
        "refuse@"
    )


def _repair(case: Case) -> Finding:
    trial = _started(case)
    before = trial.session.next_seq
    closers = repair(trial.events(), case.rules.contract)
    problems = _fits(trial, closers, "closers")
    problems += compare(
        "second repair", [], [closer.type for closer in repair(trial.events(), case.rules.contract)]
    )
    if before:
        last = trial.events()[before - 1].time
        problems += compare("time of closers", [last] * len(closers), [closer.time for closer in closers])
    return Finding({**_as_log(trial), "closers": lambda expected: _closers(expected, closers)}, problems)


def _closers(expected: Any, closers: list[Event]) -> list[Problem]:
    got = [closer_form(closer) for closer in closers]
    if not isinstance(expected, list) or len(expected) != len(got):
        return [Problem("closers", expected, got)]
    pairs = zip(expected, got, closers, strict=True)
    fits = [
        wanted == words(closer) if isinstance(wanted, str) else wanted in (form, form[:1])
        for wanted, form, closer in pairs
    ]
    return [] if all(fits) else [Problem("closers", expected, got)]


def _fits(trial: Trial, events: Iterable[Event], name: str) -> list[Problem]:
    """Appends to the trial what must be accepted."""
    for event in events:
        try:
            trial.session.append_line(line_of(event))
        except ContractError as error:
            return [Problem(name, "accepted by the session", f"{event.type} at {event.seq}: {error}")]
    return []


def _fork(case: Case) -> Finding:
    parent = _started(case)
    children: dict[str, tuple[Fork, Trial, list[int]]] = {}
    problems: list[Problem] = []
    for boundary in case.boundaries:
        child = fork(parent.events(), boundary, case.rules.contract)
        trial = Trial(case.rules)
        problems += _fits(trial, child.inherited, f"inherited at {boundary}")
        inherited = trial.session.surface.nodes
        problems += _fits(trial, child.own, f"own at {boundary}")
        trial.folded()
        children[str(boundary)] = (child, trial, inherited)

    def by_boundary(name: str, give: Callable[[Fork, Trial], Any]) -> Check:
        def check(expected: Any) -> list[Problem]:
            if not isinstance(expected, dict) and len(children) == 1:
                expected = dict.fromkeys(children, expected)
            if not isinstance(expected, dict) or not expected.keys() <= children.keys():
                return [Problem(name, expected, f"children at {list(children)}")]
            return [
                problem
                for key, wanted in expected.items()
                for problem in compare(f"{name} at {key}", wanted, give(*children[key][:2]))
            ]

        return check

    def surface(expected: Any) -> list[Problem]:
        """The surface that the child inherits; or, with closers on it, all of it."""
        whole = by_boundary("surface", lambda child, trial: trial.session.surface.nodes)
        inherited = by_boundary("surface", lambda child, trial: children[str(child.inherited[-1].seq)][2])
        return inherited(expected) and whole(expected)

    return Finding(
        {
            "own": by_boundary("own", lambda child, trial: [words(event) for event in child.own]),
            "surface": surface,
            "messages": by_boundary("messages", lambda child, trial: trial.roles()),
            "pendingInbox": by_boundary(
                "pendingInbox", lambda child, trial: [item.id for item in child.inbox.pending]
            ),
        },
        problems,
    )


def _plan(case: Case) -> Finding:
    trial = _started(case)
    events = trial.events()
    nodes = [events[seq] for seq in trial.session.surface.nodes]
    open_calls = Nesting().follow(events).calls
    legal = legal_cuts(nodes, open_calls)

    def windows(name: str, attribute: str) -> Check:
        def check(expected: Any) -> list[Problem]:
            got = {
                count: msgspec.to_builtins(getattr(last_window(nodes, int(count), open_calls), attribute))
                for count in expected
            }
            return compare(name, expected, got)

        return check

    return Finding(
        {
            **_as_log(trial),
            "legalCutsBefore": lambda expected: compare(
                "legalCutsBefore", expected, [seq for seq in expected if seq in legal]
            ),
            "illegalCutsBefore": lambda expected: compare(
                "illegalCutsBefore", expected, [seq for seq in expected if seq not in legal]
            ),
            "lastN": windows("lastN", "nodes"),
            "startsInsidePair": windows("startsInsidePair", "starts_inside_pair"),
        }
    )


OPERATIONS: Mapping[str, Callable[[Case], Finding]] = {
    "append": _append,
    "load": _load,
    "load-lines": _load_lines,
    "repair": _repair,
    "fork": _fork,
    "plan": _plan,
}
