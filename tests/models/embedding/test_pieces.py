"""The pieces of words are those of the libraries that the models were trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from satchel.models.embedding import find_weights
from satchel.models.embedding.records import USE_WEIGHTS
from satchel.models.embedding.unigram import Unigram
from satchel.models.embedding.use_model import unpacked
from satchel.models.embedding.wordpiece import WordPiece
from tests.models.embedding.test_use import use_home

__all__ = ["use_home"]

DATA = Path(__file__).parents[3] / "benchmarks/data"
# Long known to Unicode, so that every Python and every library knows them.
TEXTS: Final = st.text(
    st.one_of(
        st.characters(max_codepoint=0x36F),
        st.sampled_from(
            "αΣς İßÆﬁ½™ａｂｃ\u200b\u00a0\u2028\u00ad日本語한글שלוםनमस्ते🦀👩\u200d🔬「」—…'’\ufffd\ue000"
        ),
    ),
    max_size=40,
)
ODD: Final = "Éçà naïve café, don't! a\u0301b İstanbul 日本語のテスト 13.5°C x_y\tz\n" + "x" * 101 + " 🦀"


def said() -> list[str]:
    facts = json.loads((DATA / "own_facts.json").read_text(encoding="utf-8"))
    found = _texts(facts)
    assert len(found) > 500
    return found


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _texts(part)]


def test_words_of_the_first_model_are_split_as_by_its_library(minilm_home: Path) -> None:
    folder = find_weights(minilm_home)
    assert folder is not None
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    ours = WordPiece.of_file(folder / "tokenizer.json")

    @given(TEXTS)
    @example(ODD)
    @example("")
    def same(text: str) -> None:
        theirs = library.encode(text)
        assert ours.encode(text) == (theirs.ids, theirs.offsets)

    same()
    for text in said():
        assert ours.encode(text)[0] == library.encode(text).ids, text


def test_words_of_the_second_model_are_split_as_by_a_library(use_home: Path) -> None:
    folder = find_weights(use_home, weights=USE_WEIGHTS)
    assert folder is not None
    with np.load(unpacked(folder) / "arrays.npz", allow_pickle=False) as arrays:
        pieces = arrays["pieces"].tobytes().decode().split("\n")
        scores, charsmap = arrays["scores"].tolist(), arrays["charsmap"].tobytes()
    library = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), 0, False))
    library.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    ours = Unigram(pieces, scores, charsmap)
    texts = [
        *said()[:300],
        ODD,
        "Wo ist mein Schlüssel?",
        "我住在杭州，在一家外贸公司工作。",
        "ﬁ ½ ™ ａｂｃ  two",
        " ",
        "🦀🦀 x",
    ]
    for text in texts:
        assert ours.encode(text) == library.encode(text).ids, text
    # Where the library departs from SentencePiece, SentencePiece's pieces hold: two marks of half width are one letter
    # with their letters, and the name of a mark is a text like any other.
    assert [pieces[number] for number in ours.encode("ﾊﾞﾋﾟ")] == ["▁バ", "ピ"]
    assert [pieces[number] for number in ours.encode("<s>")] != ["<s>"]


def test_a_damaged_table_of_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="table of characters"):
        Unigram(["<unk>", "a"], [0.0, -1.0], b"\4\0\0\0\0\0\0\0no end")
