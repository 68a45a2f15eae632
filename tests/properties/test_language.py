"""The language: every tree survives the round trip through its sentence, every text gets a sentence back."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import csst
from csst.maths.language.parser import Parser
from csst.maths.language.tree import Call, ClassCount, Each, Group, Metric, Negative, Number, Sum, Term, render

names = st.sampled_from(["recall", "precision", "f1", "jaccard", "specificity", "coverage"])
groups = st.sampled_from(["head", "tail", "mine"])
quoted = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
indices = st.one_of(st.none(), st.integers(0, 20), quoted, st.builds(Group, groups))
numbers = st.one_of(st.integers(0, 1000), st.floats(0, 1e6, allow_nan=False)).map(Number)
atoms = st.one_of(
    numbers,
    st.builds(ClassCount),
    st.sampled_from(["accuracy", "mcc", "cost"]).map(Metric),
    st.builds(Metric, st.just("fbeta"), indices, st.floats(0.001, 1e5).filter(lambda beta: beta != 1)),
    st.builds(Metric, names, indices),
    st.builds(Each, names, groups),
)


def compound(inner):
    signed = st.tuples(st.sampled_from("+-"), inner)
    factors = st.tuples(st.sampled_from("*/"), inner)
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Call, st.sampled_from(["mean", "min", "gmean", "hmean", "qmean"]), several),
        st.builds(Negative, inner),
        st.tuples(inner, st.lists(signed, min_size=1, max_size=3)).map(lambda p: Sum((("+", p[0]), *p[1]))),
        st.tuples(inner, st.lists(factors, min_size=1, max_size=3)).map(lambda p: Term((("*", p[0]), *p[1]))),
    )


trees = st.recursive(atoms, compound, max_leaves=8)


@given(trees)
def test_every_tree_survives_the_round_trip(tree):
    text = f"max {render(tree)}"
    assert Parser(text).sentence()[0] == tree


WORDS = [
    "max",
    "min(",
    "mean(",
    "recall",
    "coverage",
    "[",
    "]",
    "head",
    "'a'",
    "0.5",
    "K",
    ")",
    ",",
    "s.t.",
    ">=",
    "<=",
]
WORDS += [
    "each(",
    "+",
    "-",
    "*",
    "/",
    "(",
    "accuracy",
    "3",
    "precision",
    "1e400",
    "**",
    "≥",
    "\t",
    "'",
    "\\",
    "λ",
    "gmean(",
]
soup = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(lambda w: "max " + " ".join(w))
)


@settings(max_examples=300)
@given(soup)
def test_any_text_is_an_objective_or_gets_a_sentence(text):
    c = csst.Confusion.from_counts(torch.ones(3, 3) + torch.eye(3))
    try:
        read = csst.objective(text).bind(3, class_names=["a", "b", "c"], groups={"head": [0, 1], "tail": [2]})
        assert csst.objective(str(read)).bind(3, ["a", "b", "c"], {"head": [0, 1], "tail": [2]}) == read
        read.value(c), read.slack(c)
    except csst.InputError:
        return


ROUND_TRIPS = [
    *csst.ALIASES.values(),
    "max gmean(recall)",
    "max accuracy s.t. recall['fraud'] >= 0.8, precision['fraud'] >= 0.5",
    "max mean(f1) s.t. recall >= 0.3",
    "max 0.5*min(recall) + mean(precision)/2 s.t. coverage <= 0.3",
    "max min(each(recall, tail)) - (recall[head] - recall[tail])*0.1",
    "max mean(recall[head], recall['it\\'s'], recall[2])",
    "min max(1 - recall)",
    "max accuracy s.t. coverage by sex >= 0.8*max(coverage by sex)",
]


@pytest.mark.parametrize("sentence", ROUND_TRIPS)
def test_a_sentence_is_given_back_as_written(sentence):
    read = csst.objective(sentence)
    assert str(read) == sentence
    assert csst.objective(str(read)) == read
    assert hash(csst.objective(str(read))) == hash(read)
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(("alias", "sentence"), csst.ALIASES.items())
def test_short_names_are_the_papers_objectives(alias, sentence):
    assert csst.objective(alias) == csst.objective(sentence)


@pytest.mark.parametrize(
    ("text", "says", "place"),
    [
        ("max min(recal)", "did you mean 'recall'", "recal"),
        ("max recall", "vector", "recall"),
        ("max meen(recall)", "did you mean 'mean'", "meen"),
        ("max mean(min(recall))", "not a max-min game", "min(recall)"),
        ("max gmean(recall) * min(recall)", "not a max-min game", "min(recall)"),
        ("max 1/min(recall)", "not a max-min game", "min(recall)"),
        ("max min(min(recall), 0.5)", "not a max-min game", "min(recall)"),
        ("max accuracy - 2*min(recall)", "negative factor", "min(recall)"),
        ("max accuracy s.t. min(recall) <= 0.1", "only 'min(...) >= number'", "min(recall)"),
        ("max accuracy s.t. 2*min(recall) >= 0.1", "only 'min(...) >= number'", "min(recall)"),
        ("max accuracy s.t. min(recall) >= precision", "only 'min(...) >= number'", "min(recall)"),
        ("max accuracy s.t. max(recall) >= 0.1", "only 'min(...) >= number'", "max(recall)"),
        ("max accuracy, recall >= 0.1", "an operator or 's.t.' may follow; constraints come after 's.t.'", ","),
        ("max accuracy s.t. recall >= 0.1 recall", "an operator or ',' may follow", "recall"),
        ("balanced_accuracy", "for instance 'max balanced_accuracy'", "balanced_accuracy"),
        ("recall >= 0.5", "for instance 'max mean(recall)'", "recall"),
        ("max zebra", "coverage, fbeta, accuracy, mcc, abstain, cost; functions are mean,", "zebra"),
        ("max accuracy s.t. recall = 0.1", ">= or <=", "="),
        ("max accuracy s.t. 1 >= 0.1", "no metric", "1 >= 0.1"),
        ("max 3 + K", "no metric", "3 + K"),
        ("max accuracy[head]", "one number", "accuracy"),
        ("max mean(recall) coverage >= 1", "constraints come after 's.t.'", "coverage"),
        ("max accuracy where recall >= 0.5", "constraints come after 's.t.'", "where"),
        ("max accuracy s.t. recall >= 0.5 and coverage >= 0.1", "constraints are separated by ','", "and"),
        ("max recall(fraud)", "a class is named in square brackets: recall['fraud']", "("),
        ("max accuracy s.t. precision('a') >= 0.5", "square brackets: precision['a']", "("),
        ("max mean(recall", "expected ')'", ""),
        ("max mean(recall) s.t.", "expected a metric", ""),
        ("max mean(recall) s.t. coverage >= 0.1,", "expected a metric", ""),
        ("max mean(recall + each(recall, head))", "different classes", "each(recall, head)"),
        ("maximum recall", "starts with 'max' or 'min'", "maximum"),
        ("min(recall)", "write 'max min(...)'", "min"),
        ("minimize min(recall)", "negative factor", "min(recall)"),
        ("max mcc[head]", "one number", "mcc"),
        ("max mean(fbeta)", "as in fbeta(2)", ")"),
        ("max mean(fbeta(0))", "a positive number", "0"),
        ("max mean(each(fnr, head))", "one value per class", "fnr"),
        ("max recall[-1]", "a class is an index", "-"),
        ("max recall**2", "powers", "**"),
        ("max recall['a", "not closed", "'"),
        ("max accuracy$", "not part of the language", "$"),
    ],
)
def test_a_mistake_gets_a_caret_under_its_place(text, says, place):
    with pytest.raises(csst.ObjectiveError) as caught:
        csst.objective(text)
    sentence, line, carets = str(caught.value).split("\n")
    assert says in sentence
    assert line == "  " + text
    at = carets.index("^") - 2
    assert text[at : at + len(carets.strip())] == place
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("min-recal", "did you mean 'min-recall'"),
        ("zebra-crossing", "write a sentence, or one of accuracy, mean-recall"),
        ("nosuchmodule:Thing", "cannot be imported"),
        ("csst.maths.language:Nothing", "has no 'Nothing'"),
        ("max " + "(" * 200 + "accuracy" + ")" * 200, "nested"),
        ("max " + "-" * 200 + "accuracy", "nested"),
    ],
)
def test_other_bad_sentences(text, says):
    with pytest.raises(ValueError, match=says):
        csst.objective(text)


def test_names_and_groups_are_checked_as_soon_as_they_are_known():
    with pytest.raises(ValueError, match="did you mean 'fraud'"):
        csst.objective("max recall['frad']", class_names=["ok", "fraud"])
    with pytest.raises(ValueError, match="did you mean 'fraud'"):
        csst.objective("max recall[frad]", class_names=["ok", "fraud"])
    with pytest.raises(ValueError, match="'fraud' is a class, not a group"):
        csst.objective("max min(each(recall, fraud))", class_names=["ok", "fraud"])
    with pytest.raises(ValueError, match="did you mean 'young'"):
        csst.objective("max recall[yuong]", groups={"young": [0]})
    with pytest.raises(ValueError, match="no class 7"):
        csst.objective("max recall[7]").bind(3)
    with pytest.raises(ValueError, match="beyond"):
        csst.objective("max recall[mine]", groups={"mine": [5]}).bind(3)
    with pytest.raises(ValueError, match="at once"):
        csst.objective("max recall[0]", class_names=["a", "b"]).bind(3)
    with pytest.raises(ValueError, match="not known"):
        csst.objective("max recall[tail]").value(csst.Confusion.from_counts(torch.ones(3, 3)))
    with pytest.raises(ValueError, match="class_names"):
        csst.objective("max recall['a']").value(csst.Confusion.from_counts(torch.ones(3, 3)))


def test_a_class_name_needs_no_quotes_where_no_group_has_it():
    names = ["ok", "fraud", "head"]
    text = "max mean(recall[fraud], precision) s.t. coverage[fraud] - recall[ok]*2 >= -precision[fraud]"
    quoted = "max mean(recall['fraud'], precision) s.t. coverage['fraud'] - recall['ok']*2 >= -precision['fraud']"
    assert csst.objective(text, class_names=names) == csst.objective(quoted, class_names=names)
    assert str(csst.objective(text).bind(3, names)) == quoted
    # A group wins over a class, and head and tail are groups.
    assert str(csst.objective("max recall[ok]", class_names=names, groups={"ok": [0, 1]})) == "max recall[ok]"
    assert str(csst.objective("max recall[head]", class_names=names)) == "max recall[head]"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("max accuracy s.t. min(recall) >= 0.4", "max accuracy s.t. recall >= 0.4"),
        ("max accuracy s.t. 0.3 <= min(recall, 0.9*f1)", "max accuracy s.t. 0.3 <= recall, 0.3 <= 0.9*f1"),
        ("max accuracy s.t. 0.5 >= max(coverage[0], fpr[1])", "max accuracy s.t. 0.5 >= coverage[0], 0.5 >= fpr[1]"),
        ("max accuracy s.t. max(coverage) <= 0.5", "max accuracy s.t. coverage <= 0.5"),
        ("max accuracy s.t. min(recall by sex) >= 0.4", "max accuracy s.t. recall by sex >= 0.4"),
    ],
)
def test_a_bound_on_a_worst_case_is_one_of_every_part(text, same):
    assert csst.objective(text) == csst.objective(same)
