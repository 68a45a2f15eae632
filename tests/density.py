"""How dense the source is: python tests/density.py [FOLDER] [--names]

Counts lines of code (without docstrings, comments and blank lines), files, local variables that are no nouns, paired
assignments, conditional expressions and comment lines. `tests/test_density.py` keeps what has been reached.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "csst"

#: adjectives, adverbs, determiners and participles that say nothing about the value they name
BARE_WORDS = """
    above afresh again alike all alone along among another any apart around asked at away back bad balanced before
    begun behind below beside best better beyond big both bought broken calm chosen close common dealt deep
    different done drawn due each early easy either elsewhere empty equal even every exact extra false far fast few
    fewer final fine finer first fit fitted fixed for found free fresh full further given good gone grown half held
    hidden higher inner it kept known large largest last late later least left less lone long longer loose lost
    lower lowest made main many meant met mine more most moved much near nearest new next nobody none now odd off
    old older once one only open other others out outer over own paired plain possible present quick quiet rare raw
    read real rest right safe said same seen several sharp short shown shut similar single slow small smaller
    smallest smooth soft some sorted spare still strict sure taken tall that their them then these they thin this
    those told tried true unknown untouched usable used useful wanted whole wide wider worse worst written wrong
"""
#: words that end like participles and are nouns here, or what everybody says in this field
NOUNS = """
    bed beginning binding building calling ceiling certifying coding drawing embedding encoding ending feed finding
    floating heading judging king labeled labeling listing mapping meaning naming need offspring opening padding
    parsing ranking rating reading red reed ring rounding saying scaling seed setting shed sibling speed spelling
    spring string thing timing training unlabeled warning weed weighting wing wording
"""


@dataclass
class Density:
    """Counts over some files.

    Args:
        files: how many there are.
        lines: lines of code.
        comments: lines with a comment of their own.
        pairs: assignments such as `a, b = c, d`.
        choices: conditional expressions.
        variables: local variables, counted once in each function.
        bare: those that are no nouns, by name.
    """

    files: int = 0
    lines: int = 0
    comments: int = 0
    pairs: int = 0
    choices: int = 0
    variables: int = 0
    bare: Counter = field(default_factory=Counter)

    @property
    def bare_percent(self) -> float:
        """Percentage of local variables that are no nouns."""
        return 100 * self.bare.total() / max(1, self.variables)

    @property
    def pairs_per_thousand(self) -> float:
        """Paired assignments per 1,000 lines of code."""
        return 1000 * self.pairs / max(1, self.lines)

    def describe(self) -> str:
        """Return one line with all figures."""
        return (
            f"{self.files} files, {self.lines} lines of code; not a noun: {self.bare_percent:.1f} % of "
            f"{self.variables} local variables; per 1,000 lines: {self.pairs_per_thousand:.1f} paired assignments, "
            f"{1000 * self.choices / max(1, self.lines):.1f} conditional expressions; "
            f"per 100 lines: {100 * self.comments / max(1, self.lines):.1f} comments"
        )


@cache
def is_bare(name: str) -> bool:
    """Return whether a name is one word that is an adjective, an adverb or a participle."""
    word = name.strip("_")
    if word in BARE_WORDS.split():
        return True
    return word.isalpha() and word.endswith(("ed", "ing")) and word not in NOUNS.split()


def measure(folder: Path = SOURCE) -> Density:
    """Return the counts over all Python files below a folder."""
    density = Density()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        density.files += 1
        count_lines(text, tree, density)
        for node in ast.walk(tree):
            count_node(node, density)
    return density


def count_lines(text: str, tree: ast.Module, density: Density) -> None:
    """Add lines of code and of comments."""
    docstring_lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        beginning = line.lstrip()[:1]
        if beginning and number not in docstring_lines:
            density.comments += beginning == "#"
            density.lines += beginning != "#"


def count_node(node: ast.AST, density: Density) -> None:
    """Add what one node of the tree is or holds."""
    if isinstance(node, ast.IfExp):
        density.choices += 1
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        density.pairs += isinstance(node.targets[0], ast.Tuple)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = {
            each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        } - {"_"}
        density.variables += len(names)
        density.bare.update(name for name in names if is_bare(name))


if __name__ == "__main__":
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    density = measure(Path(folders[0]) if folders else SOURCE)
    print(density.describe())
    if "--names" in sys.argv:
        print(", ".join(f"{name} {count}" for name, count in density.bare.most_common()))
