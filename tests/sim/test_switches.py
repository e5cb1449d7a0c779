"""The simulation can fail: with any one rule of the protocol off, a promise is seen broken within 2,000 seeds."""

import pytest

from sim.run import run_seed
from sim.switches import SWITCHES, switched_off

SEEDS_MAX = 2000


@pytest.mark.parametrize("rule", SWITCHES)
def test_doing_without_a_rule_is_caught(rule: str):
    with switched_off(rule):
        for seed in range(SEEDS_MAX):
            broken = {finding.promise for finding in run_seed(seed).findings}
            if broken.intersection(SWITCHES[rule].promises):
                break
        else:
            pytest.fail(f"nothing broke in {SEEDS_MAX} seeds without {rule}")
    assert not run_seed(seed).findings, "with the rule on again the same seed keeps every promise"


def test_the_rules_are_those_that_the_protocol_names():
    assert set(SWITCHES) == {
        *("fence", "epoch-equality", "chain", "sticky-ids", "sticky-ids-fifo-8", "look-at-the-log", "verdict"),
        *("freshness", "checkpoint", "session-last", "drop-on-reassignment"),
    }
