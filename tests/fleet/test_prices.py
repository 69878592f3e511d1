"""Prices of GPU-hours by GPU, purchase, place and date: against decimals, second by second; and what a file may say."""

from __future__ import annotations

import csv
import io
import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask
from tests.documents import breaches
from tests.fleet.price_reference import ObservedSpan, money_by
from tests.render.forms import unlike_csv
from tests.seeds import some
from ullage import fleet
from ullage.errors import UllageError
from ullage.render.fleet import view as fleet_view
from ullage.reports.fleet import groups
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.price_file import read_price_table
from ullage.sums.devices import within
from ullage.views.files import printed

START = 1_786_320_000  # a whole hour
STEP = 60
CLOCKS = {"H100 SXM": 1830, "A100": 1410}
HEAD = "timestamp,gpu,model,host,job,user,tensor_active,sm_clock,sm_active\n"


def observed(seed: int) -> list[ObservedSpan]:
    """Return GPUs on three hosts for one to two hours, each held by one job after another."""
    rng = random.Random(seed)
    found = []
    for number in range(rng.randint(2, 5)):
        model, host, at = rng.choice([*CLOCKS]), f"n{rng.randint(1, 3)}", START
        for _ in range(rng.randint(1, 3)):
            end = at + STEP * rng.randint(5, 60)
            job = rng.randint(1, 4)
            found.append(
                ObservedSpan(f"GPU-{number}", model, host, str(job), f"u{job}", at, end, Decimal(rng.choice(["0.25", "0.5", "0.75"])))
            )
            at = end
    return found


def samples_of(spans: list[ObservedSpan], file: Path) -> Path:
    """Write a reading a minute; each speaks for the minute before it, which the first one's does as well."""
    lines = [
        f"{second},{span.gpu},{span.model},{span.host},{span.job},{span.user},{span.ofu},{CLOCKS[span.model]},0.9\n"
        for span in spans
        for second in range(span.start + STEP, span.end + 1, STEP)
    ]
    file.write_text(HEAD + "".join(lines))
    return file


def prices(seed: int) -> dict[str, Any]:
    """Return a table whose prices begin and end at odd seconds within the window; its last price is for everything."""
    rng = random.Random(seed + 1_000_000)
    table: dict[str, Any] = {"prices": [], "node_sets": {"a": ["n1"], "b": ["n2", "n3"], "c": ["n*"]}, "teams": {}}
    for _ in range(rng.randint(1, 6)):
        one: dict[str, Any] = {"kind": rng.choice(["list", "committed", "spot"]), "amount": str(rng.randint(0, 900) / 100)}
        if rng.random() < 0.5:
            one["gpu"] = rng.choice([*CLOCKS])
        if rng.random() < 0.5:
            one["nodes"] = rng.choice([*table["node_sets"]])
        if rng.random() < 0.7:
            one["since"] = START + rng.randint(-600, 5000)
        if rng.random() < 0.5:
            one["until"] = one.get("since", START) + rng.randint(1, 5000)
        table["prices"].append(one)
    table["prices"].append({"kind": "list", "amount": "1.25"})
    table["teams"] = {"one": ["u1"], "two": ["u2", "x*"]}
    return table


def written(table: dict[str, Any], file: Path) -> Path:
    lines = ['currency = "EUR"', "[node_sets]", *(f"{name} = {hosts}" for name, hosts in table["node_sets"].items())]
    for one in table["prices"]:
        lines += ["[[prices]]", f"amount = {one['amount']}", f'kind = "{one["kind"]}"']
        lines += [f'{word} = "{one[word]}"' for word in ("gpu", "nodes") if word in one]
        lines += [f"{word} = {datetime.fromtimestamp(one[word], UTC).isoformat()}" for word in ("since", "until") if word in one]
    lines += [line for name, users in table["teams"].items() for line in (f"[teams.{name}]", f"users = {users}")]
    file.write_text("\n".join(lines) + "\n")
    return file


def priced(seed: int, folder: Path) -> tuple[FleetReport, dict[tuple[str, str], dict[str, Decimal]], Path, Path]:
    """Return the report on a random fleet at random prices, and what the reference makes of both."""
    spans, table = observed(seed), prices(seed)
    samples, file = samples_of(spans, folder / f"{seed}.csv"), written(table, folder / f"{seed}.toml")
    report = fleet(samples, price_file=str(file), by="job", gap=STEP)
    return report, money_by(spans, table), samples, file


@pytest.mark.parametrize("seed", some(range(400), quick=3))
def test_money_is_what_decimals_add_up_to_second_by_second(seed: int, tmp_path: Path) -> None:
    report, expected, samples, file = priced(seed, tmp_path)
    whole = expected["all", ""]
    assert (report.money.cost, report.money.list_cost) == pytest.approx((float(whole["cost"]), float(whole["list_cost"])), rel=1e-9)
    assert report.money.ullage_cost == pytest.approx(float(whole["ullage_cost"]), rel=1e-6)  # activity is kept in single precision
    for group in report.groups:
        own = expected["job", group.key]
        assert (group.cost, group.list_cost) == pytest.approx((float(own["cost"]), float(own["list_cost"])), rel=1e-9)
        assert group.ullage_cost == pytest.approx(float(own["ullage_cost"]), rel=1e-6)
    for bill in report.money.chargeback:
        own = expected["team", bill.team]
        assert (bill.cost, bill.list_cost) == pytest.approx((float(own["cost"]), float(own["list_cost"])), rel=1e-9)
        assert bill.ullage_cost == pytest.approx(float(own["ullage_cost"]), rel=1e-6)
    assert {bill.team for bill in report.money.chargeback} == {name for kind, name in expected if kind == "team"}
    bought = {one.kind: one.cost for one in report.money.purchases}
    assert bought == pytest.approx({name: float(own["cost"]) for (kind, name), own in expected.items() if kind == "bought"}, rel=1e-9)
    hourly = fleet(samples, price_file=str(file), by="hour", gap=STEP)
    assert sum(group.cost or 0.0 for group in hourly.groups) == pytest.approx(float(whole["cost"]), rel=1e-9)


@pytest.mark.parametrize("seed", some(range(100), quick=1))
def test_prices_that_change_within_the_window_change_no_other_number(seed: int, tmp_path: Path) -> None:
    report, _, samples, _ = priced(seed, tmp_path)
    plain = fleet(samples, by="job", gap=STEP)
    for one, other in zip([report, *report.groups], [plain, *plain.groups], strict=True):
        assert (one.ofu, one.gpu_hours, one.ullage) == pytest.approx((other.ofu, other.gpu_hours, other.ullage), rel=1e-9)
    assert [one.kind for one in report.findings] == [one.kind for one in plain.findings]
    assert [one.gpu_hours for one in report.findings] == pytest.approx([one.gpu_hours for one in plain.findings], rel=1e-9)


@pytest.fixture
def told(tmp_path: Path) -> tuple[Path, Path]:
    """Two hours of a GPU of ann's and one of bob's; committed prices for the second hour alone."""
    spans = [
        ObservedSpan("GPU-0", "H100 SXM", "n1", "7", "ann", START, START + 7200, Decimal("0.5")),
        ObservedSpan("GPU-1", "A100", "n2", "8", "bob", START, START + 7200, Decimal("0.5")),
    ]
    file = tmp_path / "prices.toml"
    file.write_text(
        'currency = "EUR"\n[node_sets]\ntrain = ["n[1-1]"]\n'
        '[[prices]]\ngpu = "H100"\namount = 4\n[[prices]]\ngpu = "A100"\namount = 1\n'
        f'[[prices]]\nkind = "committed"\nnodes = "train"\namount = 2\nsince = {datetime.fromtimestamp(START + 3600, UTC).isoformat()}\n'
        '[teams.vision]\nusers = ["ann"]\n'
    )
    return samples_of(spans, tmp_path / "samples.csv"), file


def test_every_form_says_currency_and_price_beside_each_amount(told: tuple[Path, Path], tmp_path: Path) -> None:
    samples, prices = told
    # ann: an hour at 4, an hour at 2; bob: two hours at 1. Half of it falls short: 4 of 8; at list price 8 + 2
    said = ask("fleet", samples, "--prices", prices, "--gap", "60s").out
    assert "worth EUR 4.00 at the prices paid" in said
    heads = [line for line in said.split("\n") if "GPU-hours" in line and "cost of all hours" in line]
    assert len(heads) == 2 and all("at the prices paid, EUR" in head and "of it ullage, EUR" in head for head in heads)
    assert all("all hours at list price, EUR" in head for head in heads)
    data = ask("fleet", samples, "--prices", prices, "--gap", "60s", "--json").json
    assert {name: data["ullage"][name] for name in ("fleet_cost", "cost", "fleet_list_cost", "currency", "price")} == {
        "fleet_cost": pytest.approx(8), "cost": pytest.approx(4), "fleet_list_cost": pytest.approx(10), "currency": "EUR", "price": "paid",
    }  # fmt: skip
    assert [(one["kind"], round(one["cost"], 9)) for one in data["purchases"]] == [("list", 6.0), ("committed", 2.0)]
    assert breaches(data) == []
    bills = {one["team"]: one for one in data["chargeback"]}
    assert bills["vision"]["cost"] == pytest.approx(6) and bills["no team"]["cost"] == pytest.approx(2)
    for finding in data["findings"]:
        assert (finding["currency"], finding["price"]) == ("EUR", "paid")
    for name in ("page.html", "page.md"):
        ask("fleet", samples, "--prices", prices, "--gap", "60s", "--out", tmp_path / name)
        page = (tmp_path / name).read_text()
        assert "worth EUR 4.00 at the prices paid" in page and "cost of all hours at the prices paid, EUR" in page
    shown = fleet_view(fleet(samples, price_file=str(prices), gap=STEP))
    for table in (shown.tables[name] for name in ("groups", "chargeback", "purchases")):
        page, rows = (printed(shown.alone(table.name), dict, form) for form in (".html", ".csv"))
        assert unlike_csv(str(page), str(rows), table) == [], table.name
    ask("fleet", samples, "--prices", prices, "--gap", "60s", "--out", tmp_path / "rows.csv")
    rows = [*csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text()))]
    assert {row["job"]: float(row["cost (EUR)"]) for row in rows} == pytest.approx({"7": 6, "8": 2})
    assert {row["job"]: float(row["list_cost (EUR)"]) for row in rows} == pytest.approx({"7": 8, "8": 2})


def test_teams_are_rows_that_add_up_to_the_fleet(told: tuple[Path, Path]) -> None:
    samples, prices = told
    data = ask("fleet", samples, "--prices", prices, "--by", "team", "--json").json
    assert {one["key"] for one in data["groups"]} == {"vision", "no team"}
    for rows in (data["groups"], data["chargeback"]):
        assert sum(one["cost"] for one in rows) == pytest.approx(data["ullage"]["fleet_cost"], rel=1e-12)
        assert sum(one["ullage_cost"] for one in rows) == pytest.approx(data["ullage"]["cost"], rel=1e-9)
    assert "no team is known" in ask("fleet", samples, "--by", "team").err


def test_one_price_for_all_is_the_price_given_and_says_its_currency_where_that_is_named(told: tuple[Path, Path]) -> None:
    samples, _ = told
    assert "at the price given" in ask("fleet", samples, "--price", "2", "--currency", "USD").out
    data = ask("fleet", samples, "--price", "2", "--currency", "USD", "--json").json
    assert (data["ullage"]["currency"], data["ullage"]["price"]) == ("USD", "given")
    assert ask("fleet", samples, "--price", "2", "--json").json["ullage"]["currency"] is None


def test_hours_without_a_price_are_named_and_never_counted_as_free(told: tuple[Path, Path], tmp_path: Path) -> None:
    samples, _ = told
    file = tmp_path / "some.toml"
    file.write_text('[[prices]]\ngpu = "H100"\namount = 4\n')
    data = ask("fleet", samples, "--prices", file, "--json").json
    assert data["ullage"]["fleet_cost"] is None and any("have no price (NVIDIA A100" in note for note in data["notes"])
    # what the file has no price for, --price has one for
    both = ask("fleet", samples, "--prices", file, "--price", "1", "--gap", "60s", "--json").json
    assert both["ullage"]["fleet_cost"] == pytest.approx(2 * 4 + 2 * 1)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[[prices]]\namount = -1\n", 2, "price 1 has the amount -1"),
        ("[[prices]]\namount = nan\n", 2, "price 1 has the amount nan"),
        ("[[prices]]\namount = 1\n[[prices]]\namount = '2'\n", 4, "price 2 has a wrong amount: expected a number, got text"),
        ("[[prices]]\namount = 1\n\n[[ prices ]]\ngpu = 'H100'\n", 4, "price 2 has no amount"),
        ('[[prices]]\namount = 1\nkind = "lease"\n', 3, "price 1 has a wrong kind"),
        ('[[prices]]\namount = 1\nnodes = "trian"\n[node_sets]\ntrain = ["n1"]\n', 3, "price 1 is for nodes = 'trian'"),
        ('[[prices]]\namount = 1\nsince = "yesterday"\n', 3, "price 1 has since = 'yesterday', which is not a date"),
        ("[[prices]]\namount = 1\nsince = 2026-08-02\nuntil = 2026-08-02\n", 4, "price 1 ends before it begins"),
        ('[[prices]]\namount = 1\n[[prices]]\ngpu = "H1000"\namount = 1\n', 4, "price 2 can't be used: no GPU is called 'H1000'"),
        ("[[prices]]\namount = 1\nsurprise = 2\n", 3, "price 1 has the unknown key 'surprise'"),
        ('currency = "12"\n', 1, "can't be the name of a currency"),
        ("\nkwh_price = -1\n", 2, "kwh_price: expected a number"),
        ("[teams.a]\nusers = 'ann'\n", 2, "users: expected a list, got text"),
        ("[teams.a]\n[teams.'No team']\n", 2, "the team 'No team' has the name of a row"),
        ("[[prices", 1, "this is not TOML"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("section", [False, True])
def test_a_file_that_is_wrong_says_where_before_anything_is_read(text: str, line: int, problem: str, section: bool, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    if section:  # of another file
        text = "port = 9\n[money]\n" + re.sub(r"(?m)^(\[+) ?", r"\1money.", text)
    file.write_text(text)
    with pytest.raises(UllageError) as raised:
        read_price_table(str(file))
    said = f"{raised.value.problem} {raised.value.hint}"
    assert problem in said and f"line {line + 2 * section}" in said
    asked = ask("fleet", tmp_path / "nowhere", "--prices", file)
    assert asked.code == 1 and problem in asked.err


def test_a_price_of_energy_stands_in_the_file_and_the_option_goes_before_it(told: tuple[Path, Path], tmp_path: Path) -> None:
    samples, _ = told
    head, *rows = samples.read_text().splitlines()
    (tmp_path / "metered.csv").write_text("\n".join([f"{head},power", *(f"{row},400" for row in rows)]) + "\n")
    file = tmp_path / "energy.toml"
    file.write_text('currency = "EUR"\nkwh_price = 0.25\n')
    # two GPUs at 400 W for two hours: 1.6 kWh
    for more, price in (((), 0.25), (("--kwh-price", "0.5"), 0.5)):
        data = ask("fleet", tmp_path / "metered.csv", "--prices", file, "--gap", "60s", *more, "--json").json
        account = data["energy_account"]
        assert (account["kwh_price"], account["cost"]) == (price, pytest.approx(1.6 * price))


def test_the_section_money_of_a_file_counts_and_two_currencies_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text('[money]\ncurrency = "CHF"\n[[money.prices]]\namount = 3\n')
    table = read_price_table(str(file))
    assert table.terms.currency == "CHF" and [one.amount for one in table.prices] == [3]
    said = ask("fleet", tmp_path / "nowhere", "--prices", file, "--currency", "EUR")
    assert said.code == 1 and "CHF" in said.err


@pytest.mark.parametrize(("second", "paid"), [(-1, 9.0), (0, 2.0), (3599, 2.0), (3600, 9.0)])
def test_a_price_counts_from_its_first_second_until_before_its_last(second: int, paid: float, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    since, until = (datetime.fromtimestamp(START + more, UTC).isoformat() for more in (0, 3600))
    file.write_text(f'[[prices]]\nkind = "spot"\namount = 2\nsince = {since}\nuntil = {until}\n[[prices]]\namount = 9\n')
    found = read_price_table(str(file)).paid(None, None, "n1", (START + second) * 1000)
    assert found is not None and found[0] == paid


def test_a_bill_says_which_of_its_hours_were_held_idle_and_what_they_cost(tmp_path: Path) -> None:
    # ann holds a GPU for two hours, the second of them idle; nobody holds the other, which is idle all the time
    lines = [
        f"{START + 60 * n},GPU-0,H100 SXM,n1,7,ann,{0.5 if n <= 60 else 0},{CLOCKS['H100 SXM']},{0.9 if n <= 60 else 0}\n"
        for n in range(1, 121)
    ]
    lines += [f"{START + 60 * n},GPU-1,H100 SXM,n1,,,0,{CLOCKS['H100 SXM']},0\n" for n in range(1, 121)]
    (tmp_path / "samples.csv").write_text(HEAD + "".join(lines))
    (tmp_path / "prices.toml").write_text('[[prices]]\namount = 3\n[teams.vision]\nusers = ["ann"]\n')
    data = ask("fleet", tmp_path / "samples.csv", "--prices", tmp_path / "prices.toml", "--gap", "60s", "--json").json
    bills = {one["team"]: one for one in data["chargeback"]}
    assert (bills["vision"]["held_idle_gpu_hours"], bills["vision"]["held_idle_cost"]) == (pytest.approx(1), pytest.approx(3))
    assert (bills["not allocated"]["held_idle_gpu_hours"], bills["not allocated"]["held_idle_cost"]) == (0, 0)
    assert data["ullage"]["idle_cost"] == pytest.approx(9)  # of the whole fleet: idle, whoever held it


@pytest.mark.parametrize("name", ["no team", "not allocated", "several teams", "No Team", "", " "])
def test_a_team_is_not_called_as_a_row_of_the_report_is(name: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(f'[[prices]]\namount = 3\n[teams."{name}"]\nusers = ["ann"]\n')
    said = ask("fleet", tmp_path / "nowhere", "--prices", file)
    assert said.code == 1 and f"the team '{name}'" in said.err and "prices.toml" in said.err


def test_the_key_of_an_amount_is_the_same_in_every_currency(told: tuple[Path, Path], tmp_path: Path) -> None:
    samples, _ = told
    metered = tmp_path / "metered.csv"
    head, *rows = samples.read_text().splitlines()
    metered.write_text("\n".join([f"{head},power", *(f"{row},400" for row in rows)]) + "\n")
    heads = {}
    for currency in [(), ("--currency", "EUR")]:
        words = ("fleet", metered, "--price", "2", "--kwh-price", "0.3", *currency)
        for only in ("groups", "energy"):
            ask(*words, "--only", only, "--out", tmp_path / "rows.csv")
            heads[currency, only] = next(csv.reader(io.StringIO((tmp_path / "rows.csv").read_text())))
    for only, keys in (("groups", ("cost", "ullage_cost")), ("energy", ("energy_cost",))):
        assert all(f"{key} (EUR)" in heads[("--currency", "EUR"), only] and f"{key} (money)" in heads[(), only] for key in keys)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 0), (0, 3)])
def test_prices_that_change_outside_the_window_cost_no_more_sums(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a window of two hours; a price of each day before and after it
    spans = [ObservedSpan("GPU-0", "H100 SXM", "n1", "7", "ann", START, START + 7200, Decimal("0.5"))]
    samples, file = samples_of(spans, tmp_path / "samples.csv"), tmp_path / "prices.toml"
    days = [START - 86400 * n for n in range(1, before + 1)] + [START + 86400 * n for n in range(1, after + 1)]
    file.write_text(
        "".join(f"[[prices]]\namount = 9\nsince = {datetime.fromtimestamp(day, UTC).isoformat()}\n" for day in days[::-1])
        + "[[prices]]\namount = 1\n"
    )
    spans_asked = list[tuple[int | None, int | None]]()

    def counted(table: Any, since: int | None, until: int | None) -> Any:
        spans_asked.append((since, until))
        return within(table, since, until)

    monkeypatch.setattr(groups, "within", counted)
    report = fleet(samples, price_file=str(file), by="hour", gap=STEP)
    assert report.money.cost == pytest.approx(2 * (9 if before else 1)) and spans_asked == [(None, None)]


def test_the_dearest_team_is_first_and_without_prices_that_of_the_most_hours(tmp_path: Path) -> None:
    # ann: an hour at 9; bob: two hours at 1; zoe is of no team, and holds most of all
    spans = [
        ObservedSpan("GPU-0", "H100 SXM", "n1", "7", "ann", START, START + 3600, Decimal("0.5")),
        ObservedSpan("GPU-1", "A100", "n1", "8", "bob", START, START + 7200, Decimal("0.5")),
        ObservedSpan("GPU-2", "A100", "n1", "9", "zoe", START, START + 7200, Decimal("0.5")),
        ObservedSpan("GPU-3", "A100", "n1", "9", "zoe", START, START + 7200, Decimal("0.5")),
    ]
    samples, file = samples_of(spans, tmp_path / "samples.csv"), tmp_path / "prices.toml"
    teams = "[teams.a]\nusers = ['ann']\n[teams.b]\nusers = ['bob']\n"
    for given, order in (("[[prices]]\ngpu = 'A100'\namount = 1\n[[prices]]\namount = 9\n", ["a", "b", "no team"]),
                         ("[[prices]]\ngpu = 'A100'\namount = 1\n", ["b", "a", "no team"])):  # fmt: skip
        file.write_text(given + teams)
        assert [bill.team for bill in fleet(samples, price_file=str(file), gap=STEP).money.chargeback] == order
