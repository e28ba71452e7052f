"""What the fuzzer has kept, and everything that it ever found, goes through every decoder again."""

from __future__ import annotations

import pytest

from tests.hostile.decoders import CORPUS, DECODERS, corpus
from tests.hostile.seeds import seeds


@pytest.mark.parametrize("name", DECODERS)
def test_nothing_that_was_kept_is_a_finding_any_more(name: str) -> None:
    inputs = [*corpus(name), *seeds(name)]
    assert len(inputs) > 10, "the corpus is not there"
    for raw in inputs:
        DECODERS[name](raw)


def test_every_corpus_is_of_a_decoder() -> None:
    assert {file.stem for file in CORPUS.glob("*.hex")} == {*DECODERS}
