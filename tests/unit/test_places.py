"""Places answer as a plain list does, however often ranges are replaced, taken back and read anew."""

from hypothesis import given
from hypothesis import strategies as st

from surfacelog.places import Places

ACTS = st.sampled_from(["append", "replace", "replace", "undo", "reread"])
STEPS = st.lists(st.tuples(ACTS, st.integers(0, 99), st.integers(0, 99)))


@given(st.integers(0, 12), STEPS)
def test_every_node_is_found_where_a_list_has_it(count: int, steps: list[tuple[str, int, int]]) -> None:
    seqs = list(range(count))
    places, next_seq = Places(seqs), count
    done: list[tuple[int, list[int]]] = []
    for act, first, length in steps:
        if act == "undo" and done:
            next_seq -= 1
            position, old = done.pop()
            if position < 0:
                seqs.pop()
                places.pop()
            else:
                seqs[position : position + 1] = old
                places.put_back(position, old)
        elif act == "replace" and seqs:
            position = first % len(seqs)
            old = seqs[position : position + 1 + length % (len(seqs) - position)]
            seqs[position : position + len(old)] = [next_seq]
            places.replace(position, len(old), next_seq)
            done.append((position, old))
            next_seq += 1
        elif act == "reread":
            places, done = Places(seqs), []
        else:
            seqs.append(next_seq)
            places.append(next_seq)
            done.append((-1, []))
            next_seq += 1
        assert places.seqs == seqs
        assert [places.find(seq) for seq in range(next_seq + 2)] == [
            seqs.index(seq) if seq in seqs else -1 for seq in range(next_seq + 2)
        ]


def test_a_search_looks_at_few_nodes() -> None:
    class Counted(int):
        looks = 0

        def __lt__(self, other: int) -> bool:
            Counted.looks += 1
            return int(self) < int(other)

    places = Places(map(Counted, range(100_000)))
    before = Counted.looks
    assert places.find(50_001) == 50_001
    assert 0 < Counted.looks - before < 40
