"""The command line: ``dpsco COMMAND ...``; one file a command, loaded when it is called for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from dpsco.errors import DpscoError
from dpsco.version import __version__

__all__ = ["main"]

COMMANDS = ("plan", "fit", "predict", "report", "audit", "mechanisms", "compare", "paper", "demo")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it worked, 2 if an argument or a file is wrong."""
    parser = argparse.ArgumentParser(
        prog="dpsco", description="Differentially private training in one pass and very few adaptive rounds."
    )
    parser.add_argument("--version", action="version", version=f"dpsco {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"dpsco.cli.{name}").add_parser(commands)
    args = parser.parse_args(argv)
    try:
        return int(import_module(f"dpsco.cli.{args.command}").run(args))
    except DpscoError as error:
        print(f"dpsco {args.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:  # a full disk, a folder that may not be written
        where = "" if error.filename is None else f" ({error.filename})"
        remedy = "Make room or name another place, and run the command again."
        print(f"dpsco {args.command}: {error.strerror or error}{where}. {remedy}", file=sys.stderr)
        return 2
