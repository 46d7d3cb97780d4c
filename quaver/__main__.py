"""``python -m quaver`` is the ``quaver`` command."""

from quaver.cli import main

main()
