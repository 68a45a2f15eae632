"""The grammar of objective sentences: text → tree. A parser of our own over a small whitelist; never `eval`.

sentence    max EXPR [s.t. CONSTRAINT, ... [with confidence NUMBER]]
constraint  EXPR >= EXPR | EXPR <= EXPR          (chains such as 0.1 <= coverage <= 0.2 are two constraints)
expr        terms joined by + and -; factors joined by * and /; unary -; ( ... )
atom        NUMBER | K | METRIC | METRIC[class or group] | FUNCTION(EXPR, ...) | each(METRIC, group)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from csst.errors import ObjectiveError, nearest
from csst.maths.confusion import METRICS
from csst.maths.language.tree import (
    Call,
    ClassCount,
    Constraint,
    Each,
    Group,
    Metric,
    Negative,
    Node,
    Number,
    Sum,
    Term,
)

FUNCTIONS = ("mean", "min", "gmean", "hmean", "qmean")
WORDS = ("max", "K", "each", *FUNCTIONS, *METRICS)
#: words that other libraries use, and how the language writes them
SYNONYMS = {
    "balanced_accuracy": "mean(recall)",
    "macro_recall": "mean(recall)",
    "recall_macro": "mean(recall)",
    "uar": "mean(recall)",
    "macro_precision": "mean(precision)",
    "precision_macro": "mean(precision)",
    "macro_f1": "mean(f1)",
    "f1_macro": "mean(f1)",
    "f1_score": "f1",
    "sensitivity": "recall",
    "tpr": "recall",
    "ppv": "precision",
    "iou": "jaccard",
    "error": "1 - accuracy",
    "average": "mean",
    "avg": "mean",
}
DEEPEST = 40
LONGEST = 200_000

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<st>s\.t\.|subject\s+to\b)"
    r"|(?P<name>[^\W\d]\w*)|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<op>>=|<=|==|!=|\*\*|[≥≤<>=()\[\],+\-*/])",
    re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Parser:
    """Recursive descent, one method per rule of the grammar at the top of this file."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        #: the number after "with confidence"; None if the sentence has none
        self.confidence: float | None = None
        if len(text) > LONGEST:
            raise ObjectiveError(f"an objective is a sentence of at most {LONGEST} characters; found {len(text)}")
        self.tokens = list(self._tokens())

    def sentence(self) -> tuple[Node, tuple[Constraint, ...]]:
        token = self.now
        if token.kind == "end":
            raise ObjectiveError("the objective is empty: write for instance 'max min(recall)'")
        if token.text != "max":
            example = SYNONYMS.get(token.text.lower(), "min(recall)")
            hint = f"for instance 'max {example}'"
            if token.text == "min":
                hint = "to minimize a metric write 'max -metric'"
            raise self.error(f"an objective starts with 'max'{nearest(token.text, ['max'])}; {hint}", token)
        self.advance()
        goal = self.expr()
        constraints: list[Constraint] = []
        if self.now.kind == "st":
            self.advance()
            constraints += self.constraint()
            while self.take(","):
                constraints += self.constraint()
        if self.now.text == "with":
            self.confidence = self.read_confidence(bool(constraints))
        if self.now.kind != "end":
            if self.now.text in (">=", "<=", "≥", "≤"):
                raise self.error("a constraint comes after 's.t.': max <objective> s.t. <constraint>", self.now)
            follows = "an operator or ','" if constraints else "an operator or 's.t.'"
            # A constraint written after a comma is the usual reason for one in the goal.
            hint = "; constraints come after 's.t.'" if self.now.text == "," else ""
            raise self.error(f"did not expect {self.now.text!r} here: {follows} may follow{hint}", self.now)
        return goal, tuple(constraints)

    def read_confidence(self, has_bounds: bool) -> float:
        """Return the number of "with confidence 0.95", which ends the sentence."""
        start = self.advance()
        if self.now.text != "confidence":
            raise self.error("'with' is followed by a confidence: with confidence 0.95", self.now)
        self.advance()
        number = self.now
        if number.kind != "number":
            raise self.error("a confidence is a number between 0 and 1: with confidence 0.95", number)
        if not has_bounds:
            raise self.error(
                "a confidence is for bounds, and there is none: add s.t. and a bound, or leave it out", start
            )
        if not 0 < float(number.text) < 1:
            raise self.error(f"a confidence lies between 0 and 1, such as 0.95; found {number.text}", number)
        self.advance()
        if self.now.kind != "end":
            raise self.error("a confidence ends the sentence and is for all its bounds", self.now)
        return float(number.text)

    def constraint(self) -> list[Constraint]:
        sides = [self.expr()]
        signs = []
        while self.now.kind == "op" and self.now.text in (">=", "<=", "≥", "≤", "<", ">", "=", "==", "!="):
            sign = {"≥": ">=", "≤": "<="}.get(self.now.text, self.now.text)
            if sign not in (">=", "<="):
                raise self.error(f"a constraint is written with >= or <=; found {sign!r}", self.now)
            signs.append(sign)
            self.advance()
            sides.append(self.expr())
        if not signs:
            raise self.error("a constraint needs >= or <=, as in 'coverage >= 0.95/K'", self.now)
        pairs = zip(sides, signs, sides[1:], strict=False)
        return [Constraint(a, s, b, start=a.start, end=b.end) for a, s, b in pairs]

    def expr(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"brackets are nested more than {DEEPEST} deep", self.now)
        terms = [("+", self.term())]
        while self.now.kind == "op" and self.now.text in "+-":
            terms.append((self.advance().text, self.term()))
        self.depth -= 1
        if len(terms) == 1:
            return terms[0][1]
        return Sum(tuple(terms), start=terms[0][1].start, end=terms[-1][1].end)

    def term(self) -> Node:
        factors = [("*", self.factor())]
        while self.now.kind == "op" and self.now.text in ("*", "/", "**"):
            if self.now.text == "**":
                raise self.error("powers are not part of the language: use + - * / and the functions", self.now)
            factors.append((self.advance().text, self.factor()))
        if len(factors) == 1:
            return factors[0][1]
        return Term(tuple(factors), start=factors[0][1].start, end=factors[-1][1].end)

    def factor(self) -> Node:
        start = self.now.start
        if self.take("-"):
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.error(f"signs are nested more than {DEEPEST} deep", self.now)
            of = self.factor()
            self.depth -= 1
            return Negative(of, start=start, end=of.end)
        return self.atom()

    def atom(self) -> Node:
        token = self.advance()
        if token.kind == "number":
            value = float(token.text)
            if value == float("inf"):
                raise self.error("this number is too large", token)
            is_integer = token.text.isdigit() and value < 2**53
            return Number(int(token.text) if is_integer else value, start=token.start, end=token.end)
        if token.text == "(" and token.kind == "op":
            node = self.expr()
            self.expect(")", "to close the bracket")
            return node
        if token.kind == "name":
            return self.word(token)
        what = "the sentence ends" if token.kind == "end" else f"found {token.text!r}"
        raise self.error(f"expected a metric, a function or a number here; {what}", token)

    def word(self, token: Token) -> Node:
        name = token.text
        if name == "K":
            return ClassCount(start=token.start, end=token.end)
        if name in METRICS:
            if not self.take("["):
                return Metric(name, start=token.start, end=token.end)
            if name == "accuracy":
                raise self.error(
                    "accuracy is one number and has no classes to choose from; did you mean recall[...]?", token
                )
            index = self.index()
            return Metric(name, index, start=token.start, end=self.expect("]", "to close the index").end)
        if name == "each":
            return self.each(token)
        if name in FUNCTIONS:
            self.expect("(", f"after {name}")
            args = [self.expr()]
            while self.take(","):
                args.append(self.expr())
            return Call(name, tuple(args), start=token.start, end=self.expect(")", f"to close {name}(").end)
        if name == "max":
            raise self.error("'max' may appear only once, at the start of the sentence", token)
        synonym = SYNONYMS.get(name.lower())
        hint = f"; write {synonym}" if synonym else nearest(name, WORDS)
        words = f"metrics are {', '.join(METRICS)}; functions are {', '.join(FUNCTIONS)} and each"
        raise self.error(f"unknown word {name!r}{hint} ({words})", token)

    def each(self, token: Token) -> Node:
        self.expect("(", "after each")
        metric = self.advance()
        if metric.text not in METRICS or metric.text == "accuracy":
            raise self.error(
                f"each(metric, group) takes a metric with one value per class{nearest(metric.text, METRICS[:-1])}",
                metric,
            )
        self.expect(",", "between the metric and the group of each(metric, group)")
        group = self.advance()
        if group.kind != "name":
            raise self.error("each(metric, group) takes the name of a group, such as head", group)
        return Each(metric.text, group.text, start=token.start, end=self.expect(")", "to close each(").end)

    def index(self) -> int | str | Group:
        token = self.advance()
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
            return int(token.text)
        if token.kind == "string":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)
        if token.kind == "name":
            return Group(token.text)
        raise self.error("a class is an index (3) or a quoted name ('fraud'), a group is a word (head)", token)

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        """Return the current token and go to the next one."""
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, text: str) -> bool:
        """Return whether the current token is this operator, and skip it if so."""
        is_there = self.now.kind == "op" and self.now.text == text
        self.at += is_there
        return is_there

    def expect(self, text: str, why: str) -> Token:
        if not self.take(text):
            raise self.error(f"expected {text!r} {why}", self.now)
        return self.tokens[self.at - 1]

    def error(self, sentence: str, token: Token) -> ObjectiveError:
        return ObjectiveError(sentence, self.text, token.start, token.end)

    def _tokens(self) -> Iterator[Token]:
        start = 0
        while start < len(self.text):
            match = _TOKEN.match(self.text, start)
            if match is None:
                character = self.text[start]
                why = "this quote is not closed" if character in "'\"" else f"{character!r} is not part of the language"
                raise ObjectiveError(why, self.text, start, start + 1)
            if match.lastgroup != "space":
                yield Token(str(match.lastgroup), match.group(), start)
            start = match.end()
        yield Token("end", "", len(self.text))
