"""Output tokens a second and requests in flight over the run, drawn with plotext."""

from __future__ import annotations

from tutor.client.bench.result import Result, in_flight_by_second, tokens_by_second

HEIGHT = 9
BOX_TO_ASCII = str.maketrans("┌─┐│┤└┬┘├┴┼", "+-+|++++++" + "+")


def plot(result: Result, width: int, *, ascii_only: bool = False) -> str:
    """Two curves over the seconds of the run; empty for a run under three seconds."""
    tokens, in_flight = tokens_by_second(result.run), in_flight_by_second(result.run)
    if result.run.duration < 3:
        return ""
    # The last second is cut short by the end of the run and would look like a drop.
    curves = (("output tokens/s", tokens[:-1]), ("requests in flight", in_flight[:-1]))
    half = width // 2 - 1
    left, right = (_curve(title, values, half, ascii_only).split("\n") for title, values in curves)
    return "\n".join(f"{a:<{half}}  {b}".rstrip() for a, b in zip(left, right, strict=True))


def _curve(title: str, values: list[float], width: int, ascii_only: bool) -> str:
    import plotext  # type: ignore[import-untyped]

    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, HEIGHT)
    figure.title(title)
    figure.ruler("y").lim(0, 1.1 * max(max(values), 1))
    signal = figure.signal(
        list(range(1, len(values) + 1)), list(values), marker="*" if ascii_only else "braille"
    )
    signal.lines(True)
    figure.draw(signal)
    drawn = str(figure.build().string(colorless=True))
    return drawn.translate(BOX_TO_ASCII) if ascii_only else drawn
