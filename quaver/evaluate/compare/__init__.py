"""Arms against a base, each proven by what its live server answered, and what the data can carry.

An arm is a declared configuration and the read-back that proves it. Knows servers only through HTTP,
or in this process through ``systemone`` and ``decisions``; never what is behind them.
"""

from quaver.evaluate.compare.claims import Book, Judged, judge_claims, read_book
from quaver.evaluate.compare.judge import Result, judge
from quaver.evaluate.compare.plan import Arm, Case, Plan, read_plan
from quaver.evaluate.compare.power import Design
from quaver.evaluate.compare.report import book_html, book_json, result_html, result_json
from quaver.evaluate.compare.run import run
from quaver.evaluate.compare.servers import Decides, HttpServer, LocalServer, Server, connect

__all__ = [
    "Arm",
    "Book",
    "Case",
    "Decides",
    "Design",
    "HttpServer",
    "Judged",
    "LocalServer",
    "Plan",
    "Result",
    "Server",
    "book_html",
    "book_json",
    "connect",
    "judge",
    "judge_claims",
    "read_book",
    "read_plan",
    "result_html",
    "result_json",
    "run",
]
