"""The two ways to keep messages that `bench lists` compares: both answer alike; a list stays near its payload."""

import pytest

from gateway.cli.bench_lists import lists_figures


def test_a_list_costs_what_its_messages_weigh_and_a_string_that_grew_costs_more(
    redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURFACELOG_REDIS", redis)
    figures = lists_figures(rounds=5)
    for count, bound in (("20", 1.5), ("1000", 1.2)):
        payload, memory = figures[count]["payload"], figures[count]["memory"]
        assert memory["list_appended"] <= bound * payload
        assert payload < memory["string_rebuilt"] < memory["string_appended"]
        for act in ("read_all", "read_newest", "replace", "rebuild", "append"):
            assert figures[count][act].keys() == {"list", "string"}
    assert figures["1000"]["memory"]["string_appended"] > figures["1000"]["memory"]["list_appended"]
