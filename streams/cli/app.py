"""The command's frame: which commands there are, what becomes of errors, and the exit codes."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from streams.settings import DEBUG_VARIABLE

if TYPE_CHECKING:
    from memory.errors import BanyanError


class Exit(IntEnum):
    """How `banyan` ends."""

    OK = 0
    FOUND = 1
    """`check` found a violation, or what was asked for does not exist."""
    USAGE = 2
    """The command, a setting or a file cannot be used as given."""
    REFUSED = 3
    """Some lines were refused; the rest went in."""
    UNAVAILABLE = 4
    """The store or a model cannot be used now."""
    UNEXPECTED = 70
    """An error nobody thought of."""
    INTERRUPTED = 130
    """Ctrl-C."""
    PIPE_CLOSED = 141
    """Whoever read the output stopped reading."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A command that is imported when it is used."""

    target: str
    """`module:attribute`."""
    help: str


_COMMANDS = {
    "demo": _Entry("streams.cli.demo:demo", "See it work: example chats and news become a memory; ask it."),
    "ingest": _Entry("streams.cli.ingest:ingest", "Put turns and documents from JSONL files into trees."),
    "search": _Entry("streams.cli.ask:search", "Find the turns, chunks and summaries that answer a query."),
    "context": _Entry("streams.cli.ask:context", "Pack what answers a query into a text for a prompt."),
    "forget": _Entry("streams.cli.forget:forget", "Forget turns and documents for good, in summaries too."),
    "feedback": _Entry("streams.cli.feedback:feedback", "Say that what a tree remembers is right, or wrong."),
    "tree": _Entry("streams.cli.look:tree", "Draw a tree: topics, what lies below them, what is pending."),
    "profile": _Entry("streams.cli.profile:profile", "Show who speaks in a tree, and who somebody is by what they said."),
    "stats": _Entry("streams.cli.look:stats", "Count what a tree holds and what it has cost."),
    "check": _Entry("streams.cli.look:check", "Verify a tree: every invariant, and a serial replay."),
    "eval": _Entry("streams.cli.evaluate:evaluate", "Measure retrieval on a data set with known answers."),
    "export": _Entry("streams.cli.carry:export", "Write a tree to a file that any Banyan can import."),
    "import": _Entry("streams.cli.carry:import_", "Make a tree from an exported file."),
    "topics": _Entry("streams.cli.topics:topics", "Make the Kafka topics, or show them."),
    "produce": _Entry("streams.cli.produce:produce", "Send turns and documents from JSONL files to Kafka."),
    "worker": _Entry("streams.cli.worker:worker", "Run a worker: put records from Kafka into trees, or make summaries."),
    "serve": _Entry("streams.cli.serve:serve", "Answer over HTTP: put records in, search, look at trees."),
    "mcp": _Entry("streams.cli.mcp:mcp", "Give agents the memory as tools (Model Context Protocol)."),
    "keys": _Entry("streams.cli.keys:keys", "Make, list and revoke the keys of the HTTP service."),
    "dead-letters": _Entry("streams.cli.dead_letters:dead_letters", "Look at records that could not be taken; send them again."),
    "index": _Entry("streams.cli.index:index", "Compare the search index with the store; make it anew."),
    "repair": _Entry("streams.cli.repair:repair", "Put what a store has lost in again, from the Kafka topics."),
    "config": _Entry("streams.cli.config:config", "Show the settings in force, and where each came from."),
}

_HELP = """
A streaming memory for LLM applications: turns and documents grow, online, into a tree you can ask.

\b
First steps:
  banyan demo                                   see it work
  banyan ingest chat.jsonl --tree user-42       put a file in
  banyan search user-42 "what did Ana decide?"  ask
  banyan tree user-42                           look at the topics
"""

_EPILOG = """
\b
Exit codes:
  0    done
  1    check found a violation, or there is no such tree or node
  2    the command, a setting or a file cannot be used as given
  3    some lines were refused; the rest went in
  4    the store or a model cannot be used now; the message says what to do
  70   an unexpected error; BANYAN_DEBUG=1 shows where
  130  interrupted
  141  whoever read the output stopped reading

Settings are BANYAN_* variables or a file banyan.toml; `banyan config` lists them.
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return [name for name, entry in _COMMANDS.items() if importlib.util.find_spec(entry.target.split(":")[0])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None or cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.target} is no command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            raise click.UsageError(f"there is no command {args[0]!r}" + (f"; did you mean {near[0]}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].help) for name in self.list_commands(ctx)])


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # click's signature
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version  # noqa: PLC0415  # 20 ms that only this needs

    click.echo(f"banyan {version('banyan-memory')}")
    ctx.exit()


@click.group(
    cls=_LazyGroup,
    name="banyan",
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def cli() -> None:
    """The group of all commands; its help is `_HELP`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `banyan` and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets a replacement, not an error.
            stream.reconfigure(errors="replace")
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _pipe_closed()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """
    Run a command line.

    Args:
        arguments: without the program's name; None takes the process's own.

    Returns:
        The exit code. Whatever goes wrong has been said in a line on standard error.
    """
    try:
        outcome = cli.main(args=None if arguments is None else list(arguments), prog_name="banyan", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        return _refuse_usage(error)
    except (KeyboardInterrupt, click.Abort):
        say_error("interrupted", prefix="")
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Told not to end the process, click does so in one case only: a closed pipe.
        return _pipe_closed()
    except Exception as error:  # noqa: BLE001  # the last line of defence: no traceback reaches a user
        return _explain(error)
    return int(outcome) if isinstance(outcome, int) else Exit.OK


def say_error(message: str, *, prefix: str = "error: ") -> None:
    """One line on standard error."""
    line = " ".join(message.split())
    click.echo(f"{prefix}{line}", err=True)


def _refuse_usage(error: click.ClickException) -> int:
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(message, err=True)
        return Exit.USAGE
    context = getattr(error, "ctx", None)
    hint = f" ({context.command_path} --help)" if context is not None else ""
    say_error(message.rstrip(".") + hint)
    return Exit.USAGE


def _explain(error: Exception) -> int:
    from memory.errors import BanyanError  # noqa: PLC0415  # nothing of the domain is needed for --help

    if _debugging():
        traceback.print_exception(error)
    if isinstance(error, BanyanError):
        say_error(str(error))
        return exit_code(error)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        say_error(f"{error.strerror}{where}")
        return Exit.UNAVAILABLE
    detail = "" if _debugging() else f"; {DEBUG_VARIABLE}=1 shows where"
    say_error(f"unexpected {type(error).__name__}: {str(error)[:500] or 'no message'} (this is a bug of Banyan{detail})")
    return Exit.UNEXPECTED


def exit_code(error: BanyanError) -> Exit:
    """The exit code that says what kind of error it is."""
    from memory import errors  # noqa: PLC0415

    if isinstance(error, (errors.TreeNotFoundError, errors.NodeNotFoundError)):
        return Exit.FOUND
    if isinstance(
        error, (errors.SettingError, errors.QueryError, errors.RecordError, errors.TreeMismatchError, errors.NoWeightsError)
    ):
        return Exit.USAGE
    return Exit.UNAVAILABLE


def _debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def _pipe_closed() -> int:
    # The interpreter flushes standard output once more at its end; without this that fails with a message of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.PIPE_CLOSED
