"""Bytes that an attacker may send: random ones, and valid ones with a few places changed."""

from __future__ import annotations

from hypothesis import strategies as st

_EDGES = st.sampled_from([b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\xff" * 8, b"\x80" * 9])


def mutated(valid: bytes, after: bytes = b"", longest: int = 200) -> st.SearchStrategy[bytes]:
    """Any bytes, such behind `after`, and `valid` cut or with up to four places overwritten."""

    def change(changes: list[tuple[int, bytes]]) -> bytes:
        data = bytearray(valid)
        for at, piece in changes:
            data[at : at + len(piece)] = piece
        return bytes(data)

    places = st.integers(0, len(valid) - 1)
    pieces = _EDGES | st.binary(min_size=1, max_size=4)
    return st.one_of(
        st.binary(max_size=longest),
        st.binary(max_size=longest).map(lambda data: after + data),
        places.map(lambda length: valid[:length]),
        st.lists(st.tuples(places, pieces), min_size=1, max_size=4).map(change),
    )
