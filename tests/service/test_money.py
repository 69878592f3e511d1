"""A service with a file of prices: its pages and answers say money as the commands do, and follow the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.service.running import Client, service, small_store, wait_for
from ullage.service.settings import ServiceSettings, read_settings

PRICES = """currency = "EUR"
[[prices]]
amount = {listed}
[[prices]]
kind = "committed"
nodes = "a"
amount = 1.5
[node_sets]
a = ["n1"]
[teams.vision]
users = ["ann"]
"""


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("money") / "prices.toml"
    file.write_text(PRICES.format(listed="4.0"))
    return file


@pytest.fixture(scope="module")
def client(prices: Path) -> Iterator[Client]:
    with service(ServiceSettings(source=str(small_store(prices.parent)), prices_file=str(prices))) as asking:
        yield asking


@pytest.mark.parametrize("path", ["fleet?by=team", "job/4711"])
def test_answers_are_those_of_the_command_with_these_prices(client: Client, prices: Path, path: str) -> None:
    name, _, query = path.partition("?")
    words = {"fleet": ["fleet", "STORE"], "job/4711": ["job", "4711", "STORE"]}[name]
    given = [str(prices.parent / "store") if word == "STORE" else word for word in words] + (["--by", "team"] if query else [])
    heard, said = client("/api/v1/" + path).json, ask(*given, "--prices", prices, "--json").json
    assert {**heard, "command": ""} == {**said, "command": ""}
    assert f"--prices {prices}" in heard["command"]


def test_pages_say_money_and_follow_the_file(client: Client, prices: Path) -> None:
    for path in ("/", "/job/4711", "/map", "/causes"):
        assert "EUR" in client(path).text, path
    # 4 GPUs of each host for an hour: at 1.5 on n1, as agreed, and at the list price of 4 elsewhere
    cost = client("/api/v1/fleet").json["ullage"]["fleet_cost"]
    assert cost == pytest.approx(4 * 1.5 + 4 * 4.0, rel=0.01)
    try:
        prices.write_text(PRICES.format(listed="40.00"))
        dearer = pytest.approx(4 * 1.5 + 4 * 40.0, rel=0.01)
        wait_for(lambda: client("/api/v1/fleet").json["ullage"]["fleet_cost"] == dearer)  # an older answer may go before it
    finally:
        prices.write_text(PRICES.format(listed="4.0"))


def test_the_settings_themselves_may_say_money(tmp_path: Path, prices: Path) -> None:
    # the section [money] after all else, also after the defaults that need its teams
    section = re.sub(r"(?m)^(\[+)", r"\1money.", PRICES.format(listed="4.0"))
    file = tmp_path / "ullage.toml"
    file.write_text(f'source = "{small_store(tmp_path)}"\n[defaults]\nby = "team"\n[money]\nkwh_price = 0.25\n{section}')
    checked = ask("config", "--check", file)
    assert (checked.code, checked.out) == (0, f"{file}: nothing is wrong\n")
    with service(read_settings(file)) as asking:
        found = asking("/api/v1/fleet").json
    assert found["ullage"]["currency"] == "EUR" and found["ullage"]["fleet_cost"] == pytest.approx(4 * 1.5 + 4 * 4.0, rel=0.01)
    assert found["energy_account"]["kwh_price"] == 0.25 and {one["team"] for one in found["chargeback"]} >= {"vision"}


def test_teams_of_the_file_may_be_the_default_rows(tmp_path: Path, prices: Path) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text(f'prices_file = "{prices}"\n[defaults]\nby = "team"\n')
    assert read_settings(file).words() == {"by": "team"}
    assert ask("serve", "--config", file, "--check").code == 0
    assert ask("serve", "--prices", tmp_path / "none.toml", "--check").code == 1
