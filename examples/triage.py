"""Sorts support tickets: who should answer, how urgent, is a refund asked for.

Run: python examples/triage.py
"""

import quaver

QUESTIONS = {
    "refund": quaver.Noul("Does the writer want a refund?"),
    "team": quaver.Choice(
        "Which team should answer?",
        {
            "billing": "payments, invoices and refunds",
            "delivery": "parcels and shipping",
            "technical": "bugs and crashes",
        },
    ),
    "anger": quaver.Score("How angry is the writer?", ["calm", "annoyed", "furious"]),
}

TICKETS = [
    "I was charged twice and nobody answers my mails. Give me my money back!",
    "Where is my parcel? The tracking page has said 'in transit' for nine days.",
    "Thanks, the update fixed the crash on start-up. Great work.",
]


def main() -> None:
    with quaver.load() as decider:
        for ticket in TICKETS:
            answers = decider.decide(ticket, QUESTIONS)
            refund, team, anger = answers["refund"], answers["team"], answers["anger"]
            print(ticket)
            print(f"  refund {refund.probability:.2f}   team {team.choice}   anger {anger.score:.2f} of 2\n")


if __name__ == "__main__":
    main()
