"""The questions as tools of the Model Context Protocol, for assistants that call tools: read-only, over stdin and stdout.

Source: modelcontextprotocol.io/specification. A tool is a question; its arguments are what may be asked, with the same words, bounds and
defaults as the command's options, and its answer is the text that the command prints, or its JSON, Markdown, or a table as CSV.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

import ullage
from ullage.asking.question import QUESTIONS, Progress, RegisteredQuestion
from ullage.asking.remote import field_schema, reading_fields, words_of_fields
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.views.files import printed
from ullage.views.text import text

FORMS = ("text", "json", "markdown", "csv")
INSTRUCTIONS = (
    "Ullage tells how far GPUs fall short of full, and where the shortfall goes. OFU is the share of the peak FLOP rate that the tensor "
    "cores delivered, from hardware counters; 'GPU utilization' only says that a kernel ran. Begin with `fleet` (telemetry: files, a "
    "store or a Prometheus), `job` (one job of it), `trace` (profiles), `flops` (a model's config.json) or `waterfall` (several of one "
    "job). An answer of the form 'text' is short and ends with its doubts: repeat these when you quote a number. `only` names one table, "
    "which then has all its rows."
)


@dataclass(frozen=True)
class ToolCall:
    """A tool's call, read: the question, what it asks, and the form of the answer (one of `FORMS`), with a table's name for CSV."""

    question: RegisteredQuestion[Any, Any]
    given: Mapping[str, Any]
    form: str
    table: str


def tools() -> list[types.Tool]:
    """Return the questions as tools, each with the JSON Schema of its arguments."""
    return [_tool(question) for _, question in sorted(_offered().items())]


def _offered() -> dict[str, RegisteredQuestion[Any, Any]]:
    return {one.function_name: one for one in QUESTIONS.values() if one.only_reads}


def _tool(question: RegisteredQuestion[Any, Any]) -> types.Tool:
    fields = {field.name: field_schema(field) for field in reading_fields(question)}
    form = {"type": "string", "enum": list(FORMS), "default": "text", "description": "Form of the answer; csv is one table."}
    table = {"type": "string", "description": "Only this table of the answer, with all its rows; a wrong name lists them."}
    schema = {
        "type": "object",
        "properties": {**fields, "form": form, "only": table},
        "required": [field.name for field in reading_fields(question) if field.required],
        "additionalProperties": False,
    }
    said = inspect.getdoc(question.asked) or ""
    hints = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
    return types.Tool(name=question.function_name, description=said, input_schema=schema, annotations=hints)


def tool_call(name: str, arguments: Mapping[str, Any], secrets: Mapping[str, Any]) -> ToolCall:
    """Return what a tool's call asks; `secrets` are values of fields that only the server's owner gives.

    Raises UllageError for a tool, a word or a value that there is not.
    """
    offered = _offered()
    if name not in offered:
        raise UllageError(f"there is no tool '{harmless(name, 60)}'", did_you_mean(name, offered, "tools/list"))
    question = offered[name]
    form, table = arguments.get("form", "text"), arguments.get("only", "")
    if form not in FORMS or not isinstance(table, str):
        raise UllageError(f"form must be one of {', '.join(FORMS)}, and only the name of a table")
    if form == "json" and table:
        raise UllageError("JSON holds every table", "leave out only, or ask for the form csv")
    words = {word: value for word, value in arguments.items() if word not in ("form", "only")}
    given = words_of_fields(question.noun, reading_fields(question), words, "tools/list")
    own = {field.name: secrets[field.name] for field in question.fields if field.secret and secrets.get(field.name)}
    return ToolCall(question, given | own, form, table)


def answer_of(call: ToolCall, progress: Progress) -> str:
    """Return the answer to a call in the form that it wants; raises UllageError as the command does."""
    question = call.question.question(call.given)
    report = call.question.answer(question, progress, call.question.command_line(call.given))
    described = call.question.describer(question)
    shown = {field.name: getattr(question, field.name) for field in call.question.fields if field.display}
    view = described.view(report, **shown)
    if call.table:
        view = view.alone(call.table)
    if call.form == "text":
        return text(view, whole=bool(call.table), width=120)
    return str(printed(view, lambda: described.record(report), {"json": ".json", "markdown": ".md", "csv": ".csv"}[call.form]))


async def serve(secrets: Mapping[str, Any]) -> None:
    """Serve on stdin and stdout until the client leaves. One question is answered at a time; its progress goes to the client."""
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(_: ServerRequestContext[Any], __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools())

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        def progress(words: str) -> None:
            steps.append(words)
            anyio.from_thread.run(context.session.report_progress, float(len(steps)), None, words)

        steps: list[str] = []
        try:
            call = tool_call(asked.name, asked.arguments or {}, secrets)
            said = await anyio.to_thread.run_sync(answer_of, call, progress, limiter=one_at_a_time)
        except UllageError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=said)])

    server: Server[Any] = Server(
        "ullage", version=ullage.__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
