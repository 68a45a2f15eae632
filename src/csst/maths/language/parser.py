"""The grammar of objective sentences: text → tree. A parser of our own over a small whitelist; never `eval`.

sentence    max EXPR | min EXPR [s.t. CONSTRAINT, ... [with confidence NUMBER]]
constraint  EXPR >= EXPR | EXPR <= EXPR          (chains such as 0.1 <= coverage <= 0.2 are two constraints,
                                                 and min(recall) >= 0.4 is recall >= 0.4)
expr        terms joined by + and -; factors joined by * and /; unary -; ( ... )
atom        NUMBER | NUMBER% | K | VALUE | VALUE by COLUMN | VALUE by COLUMN['group of rows']
value       METRIC | METRIC[class or group] | FUNCTION(EXPR, ...) | each(METRIC, group)

Familiar words (`csst.maths.language.words`) become the language's own: fpr['a'] is 1 - specificity['a'].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from csst.errors import ObjectiveError, nearest
from csst.maths.confusion import CLASS_METRICS
from csst.maths.language.meaning import NUMBERS, is_constant
from csst.maths.language.tree import (
    By,
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
    drop_double_minus,
    walk,
)
from csst.maths.language.words import (
    CLASS_MEANS,
    COMPLEMENTS,
    F_SCORES,
    FUNCTION_NAMES,
    GOALS,
    METRIC_NAMES,
    list_words,
)

FUNCTIONS = ("mean", "min", "gmean", "hmean", "qmean")
METRICS = (*CLASS_METRICS, "fbeta", *NUMBERS)
WORDS = (*GOALS, "K", "each", *FUNCTIONS, *METRICS, *list_words())
#: how strict inequalities and single characters are written; a bound that is just met counts as met
SIGNS = {">=": ">=", "≥": ">=", ">": ">=", "<=": "<=", "≤": "<=", "<": "<="}
DEEPEST = 40
LONGEST = 200_000

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<st>s\.t\.|(?:subject\s+to|such\s+that)\b)"
    r"|(?P<name>[^\W\d]\w*)|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<op>>=|<=|==|!=|\*\*|[≥≤<>=()\[\],+\-*/%])",
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
        #: whether the sentence says "min"; its goal is then the negative of what it says
        self.minimizes = False
        if len(text) > LONGEST:
            raise ObjectiveError(f"an objective is a sentence of at most {LONGEST} characters; found {len(text)}")
        self.tokens = list(self._tokens())

    def sentence(self) -> tuple[Node, tuple[Constraint, ...]]:
        token = self.now
        if token.kind == "end":
            raise ObjectiveError("the objective is empty: write for instance 'max min(recall)'")
        if token.text.lower() not in GOALS:
            word = token.text.lower()
            number = word if word in (*NUMBERS, *CLASS_MEANS) else "min(recall)"
            hint = f"for instance 'max {f'mean({word})' if word in CLASS_METRICS else number}'"
            raise self.error(f"an objective starts with 'max' or 'min'{nearest(token.text, GOALS)}; {hint}", token)
        self.advance()
        self.minimizes = not GOALS[token.text.lower()]
        if token.text == "min" and self.now.text == "(" and self.now.start == token.end:
            raise self.error(
                "'min(' is the worst case of a metric: write 'max min(...)' to raise it, or 'minimize ...' to make "
                "something small",
                token,
            )
        goal = self.expr()
        if self.minimizes:
            goal = Negative(goal, start=goal.start, end=goal.end)
        constraints: list[Constraint] = []
        if self.now.kind == "st":
            self.advance()
            constraints += self.constraint()
            while self.take(","):
                constraints += self.constraint()
        if self.now.text == "with":
            self.confidence = self.read_confidence(bool(constraints))
        if self.now.kind != "end":
            if self.now.text in SIGNS:
                raise self.error("a constraint comes after 's.t.': max <objective> s.t. <constraint>", self.now)
            follows = "an operator or ','" if constraints else "an operator or 's.t.'"
            hint = self.explain_stray(bool(constraints))
            raise self.error(f"did not expect {self.now.text!r} here: {follows} may follow{hint}", self.now)
        return goal, tuple(constraints)

    def explain_stray(self, has_constraints: bool) -> str:
        """Return what to write instead of the current token, which fits nowhere; "" if that is not known."""
        if not has_constraints and any(token.text in SIGNS for token in self.tokens[self.at :]):
            return "; constraints come after 's.t.'"
        if has_constraints and self.now.text.lower() == "and":
            return "; constraints are separated by ','"
        return "; constraints come after 's.t.'" if self.now.text == "," else ""

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
        self.advance()
        value = float(number.text) / (100 if self.take("%") else 1)
        if not 0 < value < 1:
            raise self.error(f"a confidence lies between 0 and 1, such as 0.95; found {value:g}", number)
        if self.now.kind != "end":
            raise self.error("a confidence ends the sentence and is for all its bounds", self.now)
        return value

    def constraint(self) -> list[Constraint]:
        sides = [self.expr()]
        signs = []
        while self.now.kind == "op" and self.now.text in (*SIGNS, "=", "==", "!="):
            if self.now.text not in SIGNS:
                raise self.error(f"a constraint is written with >= or <=; found {self.now.text!r}", self.now)
            signs.append(SIGNS[self.now.text])
            self.advance()
            sides.append(self.expr())
        if not signs:
            raise self.error("a constraint needs >= or <=, as in 'coverage >= 0.95/K'", self.now)
        pairs = zip(sides, signs, sides[1:], strict=False)
        constraints = [Constraint(a, s, b, start=a.start, end=b.end) for a, s, b in pairs]
        return [part for constraint in constraints for part in split_worst_case(constraint)]

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
            if self.take("%"):
                return Number(value / 100, start=token.start, end=token.end + 1)
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
        name = token.text.lower()
        place = {"start": token.start, "end": token.end}
        if token.text == "K":
            return ClassCount(**place)
        if name == "each":
            return self.grouped(self.each(token))
        function = FUNCTION_NAMES.get(name, name)
        if function == "gmean" and self.now.text != "(":
            return self.grouped(Call("gmean", (Metric("recall", **place),), **place))
        if function in FUNCTIONS or (function == "max" and self.now.text == "("):
            return self.grouped(self.call(function, token))
        if name in CLASS_MEANS:
            return self.grouped(Call("mean", (Metric(CLASS_MEANS[name], **place),), **place))
        if name in COMPLEMENTS:
            metric = self.grouped(self.metric(COMPLEMENTS[name], token))
            return Sum((("+", Number(1, **place)), ("-", metric)), start=token.start, end=metric.end)
        metric_name = "fbeta" if name in F_SCORES else METRIC_NAMES.get(name, name)
        if metric_name in METRICS:
            return self.grouped(self.metric(metric_name, token))
        if name in GOALS:
            raise self.error(f"{token.text!r} may appear only once, at the start of the sentence", token)
        words = f"metrics are {', '.join(METRICS)}; functions are {', '.join(FUNCTIONS)} and each"
        raise self.error(f"unknown word {token.text!r}{nearest(token.text, WORDS)} ({words})", token)

    def call(self, function: str, token: Token) -> Node:
        """Return a function of one or more parts; the largest is the negative of the smallest negative."""
        self.expect("(", f"after {token.text}")
        args = [self.expr()]
        while self.take(","):
            args.append(self.expr())
        end = self.expect(")", f"to close {token.text}(").end
        if function != "max":
            return Call(function, tuple(args), start=token.start, end=end)
        negatives = tuple(Negative(arg, start=arg.start, end=arg.end) for arg in args)
        return Negative(Call("min", negatives, start=token.start, end=end), start=token.start, end=end)

    def metric(self, name: str, token: Token) -> Metric:
        """Return a metric with its class or group, if it has one."""
        beta = None
        if name == "fbeta":
            beta = F_SCORES.get(token.text.lower()) or self.read_beta()
        if beta == 1:
            name = "f1"
            beta = None
        if self.now.text == "(" and name in CLASS_METRICS:
            class_name = self.tokens[self.at + 1].text.strip("'\"")
            raise self.error(f"a class is named in square brackets: {token.text}['{class_name}']", self.now)
        if not self.take("["):
            return Metric(name, None, beta, start=token.start, end=self.tokens[self.at - 1].end)
        if name in NUMBERS and name != "abstain":
            raise self.error(
                f"{name} is one number and has no classes to choose from; did you mean recall[...]?", token
            )
        index = self.index()
        return Metric(name, index, beta, start=token.start, end=self.expect("]", "to close the index").end)

    def grouped(self, value: Node) -> Node:
        """Return the value for each group of rows if "by column" follows it, else the value itself."""
        if self.now.kind != "name" or self.now.text.lower() != "by":
            return value
        by = self.advance()
        if isinstance(value, Negative) or (isinstance(value, Call) and value.function == "min"):
            raise self.error("a worst case takes groups inside: write min(recall by region)", by)
        if any(isinstance(node, By) for node in walk(value)):
            raise self.error("by has been said inside the brackets: say it once", by)
        column = self.advance()
        if column.kind not in ("name", "string"):
            raise self.error("by is followed by the name of a column, as in recall by region", column)
        group = None
        if self.take("["):
            token = self.advance()
            if token.kind not in ("name", "string", "number"):
                raise self.error("a group of rows is a value of the column, as in by region['north']", token)
            group = self.unquote(token)
            self.expect("]", "to close the group of rows")
        return By(value, self.unquote(column), group, start=value.start, end=self.tokens[self.at - 1].end)

    @staticmethod
    def unquote(token: Token) -> str:
        """Return the text of a word, a number or a quoted name."""
        if token.kind != "string":
            return token.text
        return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)

    def read_beta(self) -> float:
        """Return the number of fbeta(2)."""
        self.expect("(", "after fbeta, as in fbeta(2)")
        number = self.advance()
        if number.kind != "number" or not 0 < float(number.text) < 1e6:
            raise self.error("fbeta takes a positive number, as in fbeta(2), which weighs recall twice", number)
        self.expect(")", "to close fbeta(")
        return float(number.text)

    def each(self, token: Token) -> Node:
        self.expect("(", "after each")
        metric = self.advance()
        name = METRIC_NAMES.get(metric.text.lower(), metric.text.lower())
        if name not in CLASS_METRICS:
            raise self.error(
                f"each(metric, group) takes a metric with one value per class{nearest(metric.text, CLASS_METRICS)}",
                metric,
            )
        self.expect(",", "between the metric and the group of each(metric, group)")
        group = self.advance()
        if group.kind != "name":
            raise self.error("each(metric, group) takes the name of a group, such as head", group)
        return Each(name, group.text, start=token.start, end=self.expect(")", "to close each(").end)

    def index(self) -> int | str | Group:
        token = self.advance()
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
            return int(token.text)
        if token.kind == "string":
            return self.unquote(token)
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


def split_worst_case(constraint: Constraint) -> list[Constraint]:
    """Return the bounds that a bound on a worst case asks for, one for each part of the minimum.

    min(a, b) >= r holds if and only if a >= r and b >= r, and so for r <= min(a, b); max(...) <= r is min(...) >= -r of
    the negatives. Any other constraint is returned as it is: min(...) <= r asks for one of the parts only.

    Args:
        constraint: as it is written.
    """
    left, right = constraint.left, constraint.right
    larger, smaller = (left, right) if constraint.sign == ">=" else (right, left)
    if isinstance(larger, Call) and larger.function == "min" and is_constant(smaller):
        return [replace_side(constraint, larger, part) for part in larger.args]
    if isinstance(smaller, Negative) and isinstance(smaller.of, Call) and smaller.of.function == "min":
        parts = [drop_double_minus(Negative(part, start=part.start, end=part.end)) for part in smaller.of.args]
        return [replace_side(constraint, smaller, part) for part in parts] if is_constant(larger) else [constraint]
    return [constraint]


def replace_side(constraint: Constraint, side: Node, part: Node) -> Constraint:
    """Return a constraint with another node on one of its sides."""
    return replace(constraint, left=part) if side is constraint.left else replace(constraint, right=part)
