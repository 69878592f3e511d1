"""How bash, zsh and fish ask what completes a word, and are answered."""

from __future__ import annotations

import os
import re

import click
from click.core import ParameterSource
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete, add_completion_class
from click.shell_completion import _resolve_context as context_of  # click has no public name for the two steps
from click.shell_completion import _resolve_incomplete as completed_of
from click.shell_completion import split_arg_string as unquoted_words

from ullage.cli._parts import WithParts
from ullage.cli._suggested_values import matching

_BREAKS = "=:"  # where bash begins a new word within one

# As click's, but for names with spaces and for --option=value; and it asks for no other program.
_BASH_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' reply type value
    COMPREPLY=()
    reply=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1" 2>/dev/null)
    while IFS=',' read -r type value; do
        case $type in
            file) compopt -o default 2>/dev/null ;;
            dir) compopt -o dirnames 2>/dev/null ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$reply"
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || complete -F %(complete_func)s %(prog_name)s
"""


class _Quiet(ShellComplete):
    """Completion that has no answer where it can't find one: a shell that waits for a word shows no error."""

    def complete(self) -> str:
        """Return what the shell's script reads."""
        try:
            return super().complete()
        except Exception:  # whatever it is: whoever presses TAB wants a word, and the command itself will say what is wrong
            return ""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what the last word may be; of `--option=value` all of it, as a shell replaces all of it."""
        found, value = self.found(args, incomplete)
        option = incomplete[: len(incomplete) - len(value)] if incomplete.startswith("--") else ""
        for item in found:
            item.value = f"{option}{item.value}"
        return found

    def found(self, args: list[str], incomplete: str) -> tuple[list[CompletionItem], str]:
        """Return the completions, and the word that they complete: of `--option=value` the value."""
        ctx = context_of(self.cli, self.ctx_args, self.prog_name, args)
        completed, value = completed_of(ctx, args, incomplete)
        return [*_parts_of(ctx, completed, value), *completed.shell_complete(ctx, value)], value


def _parts_of(ctx: click.Context, completed: object, begun: str) -> list[CompletionItem]:
    """Return the parts of a command that its first word may name in place of its argument."""
    given = any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params)
    if given or not isinstance(ctx.command, WithParts) or not isinstance(completed, click.Argument):
        return []
    return matching(ctx.command.list_commands(ctx), begun)


class _Bash(_Quiet, BashComplete):
    """Completion for bash, which cuts words at "=" and ":", replaces only what is behind the last one, and quotes nothing."""

    source_template = _BASH_SCRIPT
    begun = ""  # the raw word, from where bash replaces it

    @staticmethod
    def _check_version() -> None:
        """The script works in any bash, and tells none apart."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the whole words before the last one, and the last one."""
        *before, last = joined(os.environ["COMP_WORDS"].split("\n")[1 : int(os.environ["COMP_CWORD"]) + 1] or [""])
        self.begun = last
        return [unquoted(word) for word in before], unquoted(last)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what bash puts in place of what it takes for the last word."""
        found, value = self.found(args, incomplete)
        own = re.split(f"[{_BREAKS}]", self.begun)[-1]
        kept = len(value) - len(unquoted(own))
        for item in found:
            item.value = item.value[kept:] if own[:1] in ("'", '"') else re.sub(r"([^\w@%+=:,./-])", r"\\\1", item.value[kept:])
        return found


class _Zsh(_Quiet, ZshComplete):
    """Completion for zsh."""


class _Fish(_Quiet, FishComplete):
    """Completion for fish, with the whole of a help that has a comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


SHELL_CLASSES: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def joined(words: list[str]) -> list[str]:
    """Return words as they were before bash cut them at "=" and ":".

    >>> joined(["fleet", "http", ":", "//node-1", "--gpu", "=", "H1"])
    ['fleet', 'http://node-1', '--gpu=H1']
    """
    whole: list[str] = []
    for word in words:
        if whole and (word[:1] in _BREAKS or whole[-1][-1:] in _BREAKS) and word:
            whole[-1] += word
        else:
            whole.append(word)
    return whole


def unquoted(word: str) -> str:
    r"""Return what a word of a command line means, whether or not its quotes are closed.

    >>> unquoted("H100\\ SXM"), unquoted("'H100 S"), unquoted("")
    ('H100 SXM', 'H100 S', '')
    """
    return " ".join(unquoted_words(word))


def completion_script(shell: str, command: click.Command) -> str:
    """Return the script that makes a shell complete the words of `ullage`."""
    return SHELL_CLASSES[shell](command, {}, "ullage", "_ULLAGE_COMPLETE").source()


def register_shells() -> None:
    """Let these shells be answered so, where click would answer by itself."""
    for name, shell in SHELL_CLASSES.items():
        add_completion_class(shell, name)
