"""The command line: ``dpsco COMMAND ...``. Each command has one file, which is loaded when it is needed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from dpsco.errors import DpscoError
from dpsco.version import __version__

__all__ = ["main"]

COMMANDS = ("columns", "plan", "fit", "predict", "report", "account", "audit", "mechanisms", "compare", "paper", "demo")
POSITIONAL = {"command", "data", "model", "target", "statement", "file"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        The arguments after ``dpsco``; those of the process if None.

    Returns
    -------
    int
        The exit code: 0 if the command succeeded, 2 if an argument or a file is wrong, 141 if the
        reader of its output was gone (as for SIGPIPE). Commands define further codes.
    """
    parser = argparse.ArgumentParser(
        prog="dpsco", description="Differentially private training in one pass and very few adaptive rounds."
    )
    parser.add_argument("--version", action="version", version=f"dpsco {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"dpsco.cli.{name}").add_parser(commands)
    args = parser.parse_args(argv)
    try:
        code = int(import_module(f"dpsco.cli.{args.command}").run(args))
        sys.stdout.flush()
        return code
    except DpscoError as error:
        print(f"dpsco {args.command}: {_with_options(str(error), args)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output is gone (| head): what was not written yet is not there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return 141
    except OSError as error:  # a full disk, a folder without write permission
        where = "" if error.filename is None else f" ({error.filename})"
        remedy = "Free some space or choose another place, then run the command again."
        print(f"dpsco {args.command}: {error.strerror or error}{where}. {remedy}", file=sys.stderr)
        return 2


def _with_options(message: str, args: argparse.Namespace) -> str:
    """Return a message of the library with ``name=value`` written as ``--name value`` where the command has it."""
    for name in set(vars(args)) - POSITIONAL:
        message = re.sub(rf"(?<![\w-]){name}=", f"--{name.replace('_', '-')} ", message)
    return re.sub(r"(?<![\w-])(--[a-z-]+)=", r"\1 ", message)
