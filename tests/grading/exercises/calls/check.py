"""Checks of the test exercise `calls`: each uses one part of the kit."""

import numpy as np

from tutor.grading.kit import Context, Refused, check, close


class Engine:
    """What `drive` gets."""

    def __init__(self, limit: int) -> None:
        self._sum = 0
        self._limit = limit

    def add(self, number: int) -> None:
        if number > self._limit:
            raise Refused(f"The engine takes numbers up to {self._limit}, not {number}.")
        self._sum += number

    def total(self) -> int:
        return self._sum


@check("callback", "a doubling function, called five times")
def callback(ctx: Context) -> None:
    calls: list[int] = []

    def double(value: int) -> int:
        calls.append(value)
        if len(calls) > 5:
            ctx.fail("You call step more than n times.")
        return 2 * value

    answer = ctx.guest.call("repeat", ctx.callback(double), 5)
    ctx.expect_equal(answer, [2, 4, 8, 16, 32], where="repeat(double, 5)")
    ctx.expect_equal(calls, [1, 2, 4, 8, 16], where="arguments of step")


@check("engine", "numbers added on an object of the grader")
def engine(ctx: Context) -> None:
    for n in (4, 1):
        remote = ctx.remote(Engine(limit=4), ["add", "total"], attrs={"limit": 4}, label="engine")
        ctx.expect_equal(ctx.guest.call("drive", remote, n), n * (n + 1) // 2, where=f"drive(engine, {n})")


@check("objects", "a stack and its copy, which stay in the guest")
def objects(ctx: Context) -> None:
    stack = ctx.guest.new("Stack")
    for word in ctx.file("words.txt").read_text().split():
        stack.call("push", word)
    twin = stack.new("copy")
    ctx.expect_equal(twin.call("pop"), "beta", where="copy.pop()")
    ctx.expect_equal([stack.get("size"), twin.get("size")], [2, 1], where="sizes of stack and copy")


@check("fields", "mean and shape of a random array")
def fields(ctx: Context) -> None:
    x = ctx.rng.normal(size=(3, 4)).astype(np.float32)
    mean, shape = ctx.fields(ctx.guest.call("summary", x), "mean", "shape")
    ctx.expect_close(mean, x.mean(), rtol=1e-5, where="mean")
    ctx.expect_equal(shape, (3, 4), where="shape")


@check("arrays", "3 × 4 random numbers times 2.5, relative error up to 1e-6")
def arrays(ctx: Context) -> None:
    x = ctx.rng.normal(size=(3, 4)).astype(np.float32)
    sent = ctx.guest.put(x)
    answer = ctx.guest.call("scale", sent, 2.5)
    ctx.misconception("not scaled", lambda: close(answer, x), "You return x itself.")
    ctx.expect_close(answer, x * np.float32(2.5), max_relative=1e-6, dtype="float32", where="scale(x, 2.5)")
    ctx.expect_equal(sent.value(), x, where="x after the call", note="Do not change x in place.")
