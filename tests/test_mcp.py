"""`ullage mcp`, asked by the protocol's own client: tools have the questions' words, answer as the commands do, and only read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import jsonschema
import pytest
from click.testing import CliRunner

from ullage.asking.question import QUESTIONS
from ullage.cli import cli

if TYPE_CHECKING:
    from mcp import ClientSession

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}


def served(ask: Callable[[ClientSession], Any], *words: str) -> Any:
    """Return what a client asks of a server in a process of its own."""
    from mcp import ClientSession, StdioServerParameters, stdio_client  # a tenth of what collecting all tests takes

    async def run() -> Any:
        server = StdioServerParameters(command=sys.executable, args=["-m", "ullage", "mcp", *words])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await ask(session)

    return anyio.run(run)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    words = ["simulate", "--gpus", "8", "--hours", "0.5", "--faults", "none", "--format", "parquet", "--out", str(folder / "fleet")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    return folder


def said(result: Any) -> str:
    return "".join(part.text for part in result.content)


def test_a_client_lists_the_tools_and_asks_them(place: Path) -> None:
    config, fleet, steps = str(place / "config.json"), str(place / "fleet" / "samples"), []

    async def heard(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total, message))

    async def ask(session: ClientSession) -> list[Any]:
        calls = [
            ("flops", {"config": config, "batch": 2, "seq": 64}),
            ("flops", {"config": config, "batch": 2, "seq": 64, "form": "json"}),
            ("fleet", {"sources": [fleet], "by": "host", "only": "groups", "form": "csv"}),
            ("fleet", {"sources": [fleet], "by": "nobody"}),
            ("fleet", {"sources": [fleet], "store": str(place / "store")}),
            ("fleet", {}),
            ("flops", {"config": config, "batch": "many"}),
            ("flops", {"config": config, "batch": True}),
            ("flops", {"config": {"a": 1}}),
            ("gemm", {"m": 512, "n": 512, "k": 512, "form": "poem"}),
            ("gemm", {"m": 512, "n": 512, "k": 512, "form": "json", "only": "tiles"}),
            ("flop", {}),
            ("gpus", {"name": "H100 SXM", "form": "markdown"}),
        ]
        return [await session.list_tools(), *[await session.call_tool(name, words, progress_callback=heard) for name, words in calls]]

    listed, *answers = served(ask)
    assert {tool.name for tool in listed.tools} == {one.function_name for one in QUESTIONS.values() if one.only_reads}
    assert all(tool.annotations.read_only_hint and tool.description for tool in listed.tools)
    for tool in listed.tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)

    text, data, table, *refused, shown = answers
    command = CliRunner().invoke(cli, ["flops", config, "--batch", "2", "--seq", "64", "--json"])
    assert not text.is_error and "FLOP" in said(text)
    assert json.loads(said(data)) == json.loads(command.output)
    assert said(table).startswith("host,") and len(said(table).splitlines()) == 2
    assert steps and [step[0] for step in steps[:2]] == [1.0, 2.0][: len(steps[:2])]
    words = [
        "nobody",
        "has no 'store'",
        "needs sources",
        "batch must be a whole number",
        "batch can't be true",
        "config can't be",
        "form must be",
        "JSON holds every table",
        "did you mean 'flops'",
    ]
    assert all(answer.is_error for answer in refused) and len(refused) == len(words)
    for answer, expected in zip(refused, words, strict=True):
        assert expected in said(answer)
    assert not (place / "store").exists()
    assert not shown.is_error and "H100" in said(shown)


def test_nothing_that_writes_loads_code_or_is_secret_is_offered() -> None:
    from ullage.cli._mcp_server import tools

    words = {tool.name: set(tool.input_schema["properties"]) for tool in tools()}
    assert "audit_counter" not in words and "audit_mfu" in words
    assert "headers" not in words["fleet"] and "store" not in words["fleet"] and "since" in words["fleet"]
    assert all("cupti" not in of for of in words.values())


def test_secrets_are_the_servers_own() -> None:
    from ullage.cli._mcp_server import tool_call

    given = tool_call("fleet", {"sources": "http://127.0.0.1:1"}, {"headers": {"Authorization": "Bearer x"}})
    assert given.question.question(given.given).headers == {"Authorization": "Bearer x"}
    assert "Bearer" not in given.question.command_line(given.given)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("fleet", {"sources": ("a b", "c"), "by": "host", "strict": True}, "ullage fleet 'a b' c --by host --strict"),
        ("fleet", {"sources": ("http://me:pa55@h/",), "headers": {"K": "v"}, "strict": False}, None),
        ("gemm", {"m": 1, "n": 2, "k": 3}, "ullage gemm 1 2 3"),
        ("audit mfu", {"config": "c.json", "reported": 0.5}, "ullage audit mfu --config c.json --reported 0.5"),
    ],
)
def test_the_command_that_asks_the_same(name: str, given: dict[str, Any], expected: str | None) -> None:
    line = QUESTIONS[name].command_line(given)
    assert line == expected if expected else "pa55" not in line and "--header" not in line and "--strict" not in line
