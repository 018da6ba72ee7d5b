"""The tuned judge's pairs: a check of its own for each family says which response is better."""

import itertools
import re
from collections import Counter

import pytest

from tests.tuned_judge.pairs import FAMILIES, GAP, SEEN, UNSEEN, pairs
from tests.tuned_judge.sentences import is_held_out, load
from tests.tuned_judge.sets import NAMES, Name, measured_pairs

PAGES = load()
PAGE_OF = {sentence: page for page, own in PAGES.items() for sentence in own}
COPIES = {name for name in FAMILIES if name.startswith("copy")} | {"dropped", "doubled"}


def words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.lower())


def letters(text: str) -> Counter[str]:
    return Counter(character for character in text.lower() if character.isalpha())


def shown(family: str, question: str) -> str:
    """The text that a question is about, without the instruction."""
    for wording in FAMILIES[family].wordings:
        pattern = re.escape(wording).replace(r"\{sentence\}", "(.+)").replace(r"\{word\}", ".+")
        found = re.fullmatch(pattern, question)
        if found:
            return found[1]
    raise AssertionError(f"no wording of {family} has this question: {question}")


def follows(family: str, question: str, response: str) -> bool:
    """Whether a response follows the instruction, found from the texts alone."""
    if family in ("contains", "keywords", "fluent"):
        asked = re.findall(r"\d+", question) if family == "fluent" else []
        if asked:
            return response in PAGE_OF and len(response.split()) == int(asked[0])
        listed = question.partition('"')[2].partition('"')[0] or question.partition(": ")[2]
        return response in PAGE_OF and set(listed.split(", ")) <= set(words(response))
    text = shown(family, question)
    if family in COPIES:
        return response == text
    if family == "order":
        return response in PAGE_OF and Counter(words(response)) == Counter(words(text))
    if family in ("spelling", "unscrambled"):
        return response in PAGE_OF
    if family in ("upper", "lower"):
        changed = text.upper() if family == "upper" else text.lower()
        return response == changed
    if family == "title":
        return response.lower() == text.lower() and all(w[0].isupper() for w in response.split())
    if family == "finish":
        return f"{text} {response}" in PAGE_OF
    if family == "gap":
        return text.replace(GAP, response) in PAGE_OF
    if family == "first_word":
        return response.lower() == words(text)[0]
    if family == "last_words":
        return text.endswith(f" {response}.")
    if family == "subject":
        return PAGE_OF[response] == PAGE_OF[text] and response != text
    found = re.search(r'"(.+?)"', question)
    assert found
    word, known = found[1].lower(), words(text)
    if family == "next_word":
        return known[known.index(word) + 1] == response.lower()
    assert family == "yes_or_no"
    return response == ("Yes." if word in known else "No.")


@pytest.mark.parametrize("held_out", [True, False])
def test_exactly_the_labelled_response_follows_the_instruction(held_out: bool) -> None:
    for family in FAMILIES:
        for pair in itertools.islice(pairs(3, held_out=held_out, families=(family,)), 200):
            right, wrong = pair.response_a, pair.response_b
            if pair.label == "B":
                right, wrong = wrong, right
            assert follows(family, pair.question, right), pair
            assert not follows(family, pair.question, wrong), pair


def test_both_positions_are_right_equally_often_in_every_family() -> None:
    for name in NAMES:
        found = Counter((pair.family, pair.label) for pair in measured_pairs(name))
        families = SEEN if name == "seen" else UNSEEN
        assert {family for family, _ in found} == set(families)
        assert len(found) == 2 * len(families)
        assert len(set(found.values())) == 1


def test_no_sentence_of_a_held_out_page_is_trained_on() -> None:
    held_out = {text for text, page in PAGE_OF.items() if is_held_out(page)}
    trained = set(PAGE_OF) - held_out
    assert held_out
    assert trained
    assert not {text.lower() for text in held_out} & {text.lower() for text in trained}
    for pair in itertools.islice(pairs(5, held_out=False, families=tuple(SEEN)), 1500):
        text = f"{pair.question}\n{pair.response_a}\n{pair.response_b}".lower()
        own = [each for each in PAGE_OF if each.lower() in text]
        assert not held_out & set(own), pair


@pytest.mark.parametrize("name", NAMES)
def test_measured_pairs_are_the_same_on_every_call(name: Name) -> None:
    assert measured_pairs(name) == measured_pairs(name)


def test_unseen_families_are_not_trained_on() -> None:
    assert not set(SEEN) & set(UNSEEN)
    asked = {wording for family in SEEN.values() for wording in family.wordings}
    assert not asked & {wording for family in UNSEEN.values() for wording in family.wordings}
