"""Checks of the test exercise `sum`."""

from tutor.grading.kit import Context, check


@check("random lists", "ten lists of whole numbers, against Python's sum")
def random_lists(ctx: Context) -> None:
    for length in range(2, 12):
        numbers = [int(n) for n in ctx.rng.integers(-50, 50, length)]
        answer = ctx.guest.call("total", numbers)
        ctx.misconception(
            "first", lambda n=numbers, a=answer: a == sum(n[1:]), "You leave out the first number."
        )
        ctx.misconception(
            "last", lambda n=numbers, a=answer: a == sum(n[:-1]), "You leave out the last number."
        )
        ctx.expect_equal(answer, sum(numbers), where=f"total({numbers})")


@check("empty list", "an empty list adds up to 0")
def empty(ctx: Context) -> None:
    ctx.expect_equal(ctx.guest.call("total", []), 0, where="total([])")
