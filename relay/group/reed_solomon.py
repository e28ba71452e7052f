"""Parity of equal pieces, any of which stands for any piece that got lost (Reed-Solomon). Pure.

Arithmetic is in the field of 256 elements, by x^8 + x^4 + x^3 + x^2 + 1, as in RFC 5510. The parity
with index `n` is the sum of the pieces, each times 1 / (n + its own index): rows of a Cauchy
matrix, all of whose square parts have an inverse. So any pieces, as many as there were at first,
give back all.

A piece is multiplied as a whole, by `bytes.translate` with one of 256 tables, and pieces are added
as integers, by exclusive or. That is as fast as a library in C, whose licence or wheels not
everybody has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

_POLYNOMIAL = 0x11D
_ORDER = 255
"""Elements of the field but 0, all of which are powers of 2."""


def _tables() -> tuple[bytes, bytes]:
    """Return the powers of 2, twice over, and the logarithms of the elements."""
    powers, logs = bytearray(2 * _ORDER), bytearray(_ORDER + 1)
    value = 1
    for exponent in range(_ORDER):
        powers[exponent] = powers[exponent + _ORDER] = value
        logs[value] = exponent
        value <<= 1
        if value > _ORDER:
            value ^= _POLYNOMIAL
    return bytes(powers), bytes(logs)


_POWERS, _LOGS = _tables()


@lru_cache(maxsize=_ORDER)
def _times(log: int) -> bytes:
    """Return the table of products with the element of a logarithm."""
    return bytes([0, *(_POWERS[log + _LOGS[element]] for element in range(1, _ORDER + 1))])


def _sum(terms: Iterable[tuple[int, bytes]]) -> int:
    """Return the sum of pieces, each times the element of a logarithm, as an integer."""
    total = 0
    for log, piece in terms:
        total ^= int.from_bytes(piece.translate(_times(log)), "little")
    return total


def _coefficient(row: int, column: int) -> int:
    """Return the logarithm of a piece's factor in the parity with the index `row`."""
    return -_LOGS[row ^ column] % _ORDER


def parity(pieces: Sequence[bytes], index: int) -> bytes:
    """Return the parity with an index, from the number of pieces on, and 255 at most."""
    terms = ((_coefficient(index, number), piece) for number, piece in enumerate(pieces))
    return _sum(terms).to_bytes(len(pieces[0]), "little")


def recover(pieces: Mapping[int, bytes], count: int) -> list[bytes]:
    """Return all of the `count` pieces, of which as many are given by their indexes, parity among
    them.
    """
    size = len(next(iter(pieces.values())))
    columns = [index for index in range(count) if index not in pieces]
    rows = sorted(index for index in pieces if index >= count)[: len(columns)]
    rests = []
    for row in rows:
        there = [(_coefficient(row, index), pieces[index]) for index in pieces if index < count]
        rest = _sum(there) ^ int.from_bytes(pieces[row], "little")
        rests.append(rest.to_bytes(size, "little"))
    inverse = _inverse(rows, columns)
    found = dict(pieces)
    for column, logs in zip(columns, inverse, strict=True):
        found[column] = _sum(zip(logs, rests, strict=True)).to_bytes(size, "little")
    return [found[index] for index in range(count)]


def _inverse(rows: Sequence[int], columns: Sequence[int]) -> list[list[int]]:
    """Return the logarithms of the inverse of a part of the Cauchy matrix, by its columns."""
    of_rows = [
        sum(_LOGS[row ^ column] for column in columns)
        - sum(_LOGS[row ^ other] for other in rows if other != row)
        for row in rows
    ]
    of_columns = [
        sum(_LOGS[row ^ column] for row in rows)
        - sum(_LOGS[column ^ other] for other in columns if other != column)
        for column in columns
    ]
    return [
        [(up + over - _LOGS[row ^ column]) % _ORDER for row, up in zip(rows, of_rows, strict=True)]
        for column, over in zip(columns, of_columns, strict=True)
    ]
