"""Prints what the demo measures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.measure import Acceptance, Measurement


class Screen:
    """The terminal, or whatever the output is sent to."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def heading(self, text: str) -> None:
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left")

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def prompt(self, text: str) -> None:
        """Begin a completion: its prompt, dimmed, with the cursor left at its end."""
        self.console.print()
        self.console.print(Text(text, style="dim"), end="")

    def piece(self, text: str) -> None:
        self.console.print(Text(text, style="bold"), end="", soft_wrap=True)

    def figures(self, measured: Measurement) -> None:
        words = [
            f"{measured.tokens} tokens",
            f"{measured.tokens_per_second:.0f} tokens/s",
        ]
        if measured.acceptance is not None:
            words.append(f"accept length {measured.acceptance.length:.2f}")
            words.append(f"by position {percentages(measured.acceptance)}")
        self.console.print()
        self.console.print(Text("  " + ", ".join(words), style="cyan"))

    def side_by_side(
        self, nextn: Sequence[Measurement], plain: Sequence[Measurement]
    ) -> None:
        table = Table(title="The same prompts, greedy", title_justify="left")
        table.add_column("prompt", overflow="ellipsis", no_wrap=True, max_width=28)
        table.add_column("same text")
        for name in ("tokens", "NEXTN tok/s", "without tok/s", "ratio"):
            table.add_column(name, justify="right")
        table.add_column("accept length", justify="right")
        table.add_column("by position")
        for ours, theirs in zip(nextn, plain, strict=True):
            ratio = ours.tokens_per_second / theirs.tokens_per_second
            table.add_row(
                Text(ours.prompt.strip().splitlines()[0]),
                "yes" if ours.text == theirs.text else "no",
                str(ours.tokens),
                f"{ours.tokens_per_second:.0f}",
                f"{theirs.tokens_per_second:.0f}",
                f"{ratio:.2f}",
                f"{ours.acceptance.length:.2f}" if ours.acceptance else "-",
                percentages(ours.acceptance) if ours.acceptance else "-",
            )
        self.console.print()
        self.console.print(table)


def percentages(acceptance: Acceptance) -> str:
    return " / ".join(f"{share:.0%}" for share in acceptance.by_position)
