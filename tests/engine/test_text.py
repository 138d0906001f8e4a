"""Text, ids and logprobs end at the same token, and reported text is never taken back."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinfer import FinishReason, SamplingParams
from specinfer.engine.text import CompletionText, IncrementalDecoder, StopRules
from specinfer.testing.models import ByteTokenizer

TOKENIZER = ByteTokenizer()
EOS = 257


def _completion(max_tokens: int = 1000, **params: object) -> CompletionText:
    sampling = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type]
    rules = StopRules.of(sampling, frozenset({EOS}), max_tokens)
    return CompletionText(sampling, rules, TOKENIZER, [65])


@given(st.text(max_size=30))
def test_incremental_text_equals_decoding_at_once(text: str) -> None:
    decoder = IncrementalDecoder(TOKENIZER, [65, 66], skip_special_tokens=True)
    for byte in text.encode():
        before = decoder.text
        decoder.append(byte)
        assert decoder.text.startswith(before)
    decoder.flush()
    assert decoder.text == text


@given(st.binary(max_size=30))
def test_bytes_that_are_no_text_are_neither_lost_nor_doubled(data: bytes) -> None:
    decoder = IncrementalDecoder(TOKENIZER, [], skip_special_tokens=True)
    for byte in data:
        decoder.append(byte)
    decoder.flush()
    assert decoder.text.replace("\ufffd", "") == data.decode(errors="replace").replace("\ufffd", "")


@given(
    st.text(alphabet="ab\u00e9\u20ac", max_size=20),
    st.lists(st.text(alphabet="ab\u00e9", min_size=1, max_size=3), max_size=3),
)
def test_stable_text_only_grows_and_ends_before_the_first_stop(text: str, stops: list[str]) -> None:
    completion = _completion(stop=stops or None)
    seen = ""
    for byte in text.encode():
        completion.walk([byte])
        assert completion.stable_text.startswith(seen)
        seen = completion.stable_text
        if completion.finish_reason is not None:
            break
    starts = [text.find(stop) for stop in stops if stop in text]
    if starts:
        assert completion.finish_reason is FinishReason.STOP
        assert not any(stop in completion.text for stop in stops)
        assert text.startswith(completion.text)
    else:
        assert completion.finish_reason is None


def test_a_stop_inside_a_row_of_tokens_cuts_the_row() -> None:
    completion = _completion(stop="lo")
    assert completion.walk(list(b"hello world")) == 5
    assert (completion.text, completion.stop_reason) == ("hel", "lo")


class _JoinedTokenizer(ByteTokenizer):
    """Id 256 is one token for the end of a word and the first byte of a euro sign."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(b"END\xe2" if i == 256 else bytes([i]) for i in token_ids).decode(errors="replace")


@pytest.mark.parametrize("max_tokens", [2, 9])
def test_a_stop_string_before_an_incomplete_character_ends_at_its_own_token(max_tokens: int) -> None:
    params = SamplingParams(max_tokens=max_tokens, stop="END")
    completion = CompletionText(params, StopRules.of(params, frozenset(), max_tokens), _JoinedTokenizer(), [65])
    assert completion.walk([ord("a"), 256, 0x82, 0xAC]) == 2
    assert (completion.text, completion.stop_reason) == ("a", "END")


@pytest.mark.parametrize(("stops", "stop"), [(["ND", "EN"], "EN"), (["EN", "ND"], "EN"), (["E", "EN"], "EN")])
def test_of_the_stop_strings_that_one_token_completes_the_first_in_the_text_counts(stops: list[str], stop: str) -> None:
    params = SamplingParams(stop=stops)
    completion = CompletionText(params, StopRules.of(params, frozenset(), 9), _JoinedTokenizer(), [65])
    assert completion.walk([ord("a"), 256]) == 2
    assert (completion.text, completion.stop_reason) == ("a", stop)


def test_text_before_an_incomplete_character_is_given_once() -> None:
    decoder = IncrementalDecoder(_JoinedTokenizer(), [65], skip_special_tokens=True)
    texts = []
    for token_id in (256, 0x82, 0xAC, ord("b")):
        decoder.append(token_id)
        texts.append(decoder.text)
    assert texts == ["END", "END", "END\u20ac", "END\u20acb"]


def test_include_stop_string_keeps_it() -> None:
    completion = _completion(stop="lo", include_stop_str_in_output=True)
    completion.walk(list(b"hello"))
    assert completion.text == "hello"


@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_eos_ends_without_text_and_is_counted(skip_special_tokens: bool) -> None:
    completion = _completion(skip_special_tokens=skip_special_tokens)
    assert completion.walk([*b"hi", EOS, *b"never"]) == 3
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("hi", FinishReason.STOP, None)


def test_ignore_eos_goes_on_to_the_length() -> None:
    completion = _completion(max_tokens=4, ignore_eos=True)
    assert completion.walk([EOS, *b"abcdef"]) == 4
    assert completion.finish_reason is FinishReason.LENGTH


def test_a_stop_at_the_last_token_beats_length() -> None:
    completion = _completion(max_tokens=2, stop="b")
    completion.walk(list(b"ab"))
    assert completion.finish_reason is FinishReason.STOP


def test_a_stop_token_id_is_the_reason_and_leaves_no_text() -> None:
    completion = _completion(stop_token_ids=[ord("x")])
    assert completion.walk(list(b"axb")) == 2
    assert (completion.text, completion.stop_reason) == ("a", ord("x"))


def test_a_stop_that_ended_just_before_min_tokens_does_not_count_at_the_next_token() -> None:
    completion = _completion(stop="lo", min_tokens=6)
    assert completion.walk(list(b"hello world")) == 11
    assert completion.finish_reason is None


@pytest.mark.parametrize("stop", ["\n", "b\n"])
def test_min_tokens_ignores_stops_that_ended_before_it(stop: str) -> None:
    completion = _completion(stop=stop, min_tokens=6)
    assert completion.walk(list(b"ab\ncdef")) == 7, "a stop string completed too early does not count later"
    assert completion.walk(list(b"b\nzz")) == 2
    assert completion.finish_reason is FinishReason.STOP
