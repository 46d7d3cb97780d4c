"""Draws docs/images/ask.svg: a question asked of the embedded model, as the terminal shows it."""

from pathlib import Path

from rich.console import Console

import quaver
from quaver.cli.questions import from_flags
from quaver.cli.table import answers_table

STATE = "I was charged twice and nobody answers my mails. Give me my money back!"
NOUL = "Does the writer want a refund?"
CHOICE = "Which team should answer? = billing: payments | delivery: parcels | tech: bugs"
SCORE = "How angry is the writer? = calm | annoyed | furious"


def main() -> None:
    with quaver.load() as decider:
        reply = decider.systemone({"state": STATE, "questions": from_flags([NOUL], [CHOICE], [SCORE])})
    console = Console(record=True, width=96)
    console.print(f"$ quaver ask '{STATE}' \\", highlight=False)
    console.print(f"    --noul '{NOUL}' \\", highlight=False)
    console.print(f"    --choice '{CHOICE}' \\", highlight=False, soft_wrap=True)
    console.print(f"    --score '{SCORE}'", highlight=False)
    console.print(answers_table(reply))
    path = Path(__file__).parent.parent / "docs/images/ask.svg"
    path.parent.mkdir(exist_ok=True)
    console.save_svg(str(path), title="quaver ask")


if __name__ == "__main__":
    main()
