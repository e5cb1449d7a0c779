"""Conformance vectors: attempts offered to an empty session, and the exact answers and state expected of it."""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.cli.outcome import Outcome, Problem, compare
from gateway.cli.trial import Rules, Trial
from surfacelog import lossless
from surfacelog.errors import ContractError
from surfacelog.fold import Fold

__all__ = ["check_vector"]


def check_vector(line: bytes, source: str) -> Outcome:
    """Runs one vector line. A line that is no vector fails with what is wrong about it."""
    outcome = Outcome(source, source, "vector")
    try:
        fields = lossless.members(line)
        if fields is None:
            raise ContractError("json-invalid", "a vector is a JSON object")
        outcome.id = str(lossless.read(fields["id"]))
        attempts = lossless.elements(fields["attempts"])
        expect = lossless.read(fields["expect"])
        rules = _rules(fields)
    except KeyError as missing:
        outcome.problems = [Problem("vector", "id, contract, attempts, expect", f"no {missing.args[0]}")]
        return outcome.settle()
    except (ContractError, msgspec.ValidationError) as error:
        outcome.problems = [Problem("vector", "one JSON object", str(error))]
        return outcome.settle()
    if rules.contract not in ("v4", "v0"):
        outcome.problems = [Problem("contract", "v4 or v0", rules.contract)]
    elif attempts is None or not isinstance(expect, dict) or not isinstance(expect.get("results"), list):
        outcome.problems = [Problem("vector", "a list of attempts and expect.results", "something else")]
    else:
        try:
            _run(outcome, attempts, expect, rules)
        except Exception as error:
            # A stranger's vector must not end the whole run; what broke is told on its line.
            outcome.problems.append(Problem("vector", "an answer", f"{type(error).__name__}: {error}"))
    return outcome.settle()


def _rules(fields: dict[str, bytes]) -> Rules:
    chosen: dict[str, Any] = {}
    for name in ("checks", "vocabulary"):
        if name in fields:
            chosen[name] = lossless.read(fields[name])
    return msgspec.convert({**chosen, "contract": lossless.read(fields["contract"])}, Rules)


def _run(outcome: Outcome, attempts: list[bytes], expect: dict[str, Any], rules: Rules) -> None:
    trial = Trial(rules)
    results = expect["results"]
    outcome.problems += compare("number of results", len(results), len(attempts))
    for index, (attempt, expected) in enumerate(zip(attempts, results, strict=False)):
        try:
            got: dict[str, Any] = {"ok": trial.offer(attempt)}
        except ContractError as error:
            got = {"error": error.code}
        outcome.problems += compare(f"results[{index}]", expected, got)
    try:
        folded = trial.folded()
    except AssertionError as error:
        outcome.problems.append(Problem("fold", "what the session holds", str(error)))
        return
    for name, expected in expect.items():
        if name in _STATE:
            outcome.problems += compare(name, expected, _STATE[name](trial, folded))
        elif name != "results":
            outcome.unchecked.append(name)


_STATE: dict[str, Callable[[Trial, Fold], Any]] = {
    "nodes": lambda trial, folded: trial.session.surface.nodes,
    "replaceGeneration": lambda trial, folded: trial.session.surface.replace_generation,
    "contentGeneration": lambda trial, folded: trial.session.surface.content_generation,
    "messages": lambda trial, folded: [{"seq": seq, "message": message} for seq, message in trial.messages()],
    "transcript": lambda trial, folded: list(trial.session.transcript),
    "replacements": lambda trial, folded: msgspec.to_builtins(folded.replacements),
}
