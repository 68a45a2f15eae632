"""One BLAS thread while rules are searched: on their small products, a second one takes four times the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@cache
def find_libraries() -> ThreadpoolController:
    """Return the libraries of this process whose threads can be limited; looking for them takes 10 ms."""
    return ThreadpoolController()


def use_one_thread(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function, with BLAS limited to one thread while it runs."""

    @wraps(function)
    def limited(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with find_libraries().limit(limits=1, user_api="blas"):
            return function(*args, **options)

    return limited
