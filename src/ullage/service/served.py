"""Which questions are asked over a network, what a request may say, and how an address becomes a question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ullage.asking import Askable
from ullage.asking.question import QUESTIONS, RegisteredQuestion
from ullage.asking.remote import public_fields, words_of_fields
from ullage.errors import UllageError, harmless
from ullage.questions.fleet import other_time
from ullage.questions.fleet_map import OWNER_KEYS
from ullage.reports.fleet.request import GROUPINGS
from ullage.views.declared import iso
from ullage.written_values import moment

FORMS = {"html": ".html", "json": ".json", "csv": ".csv", "markdown": ".md", "text": ".txt"}
TIMES = ("since", "until")
OF_FLEET = ("fleet", "fleet-map")  # questions on the part of the fleet that `where` names
PAGE_HOURS = 24  # of the store that pages of the fleet show where nothing is said of the time
_SWITCHES = {"": True, "1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}


@dataclass(frozen=True)
class ServedQuestion:
    """A question that is answered: the field that takes what the service reads ("": it reads nothing), and the kinds of its documents.

    `keys` are what its rows may be `by`.

    Of fields that may name a place or a time, a request may say those of `times`, and then a span or a time alone.
    """

    name: str
    kinds: tuple[str, ...]
    place: str = ""
    times: tuple[str, ...] = ()
    keys: tuple[str, ...] = (*GROUPINGS, "sample")

    @property
    def path(self) -> str:
        """Where it is in an address: "store/info"."""
        return self.name.replace(" ", "/")

    @property
    def jobs(self) -> bool:
        """Whether it takes job records beside what it reads."""
        return any(field.name == "jobs" for field in self.question.fields)

    @property
    def money(self) -> bool:
        """Whether it takes a file of prices."""
        return any(field.name == "price_file" for field in self.question.fields)

    @property
    def question(self) -> RegisteredQuestion[Any, Any]:
        """The question itself."""
        return QUESTIONS[self.name]

    @property
    def fields(self) -> list[Askable]:
        """What a request may say: nothing that names what is read, no secret, nothing that acts; a job's id stands in its address."""
        return [*public_fields(self.question), *(field for field in self.question.fields if field.name in self.times)]


# Those that read a store, and those that read nothing. Others read files that a request would have to name.
SERVED = {
    one.name: one
    for one in (
        ServedQuestion("fleet", ("fleet",), "sources", ("against",)),
        ServedQuestion("fleet-map", ("fleet-map",), "sources", keys=OWNER_KEYS),
        ServedQuestion("job", ("job", "job-setup"), "sources"),
        ServedQuestion("watch", ("watch",), "sources"),
        ServedQuestion("doctor", ("doctor",), "sources"),
        ServedQuestion("gpus", ("gpus",)),
        ServedQuestion("metrics", ("metrics", "fields")),
        ServedQuestion("store info", ("store",), "folder"),
    )
}


@dataclass(frozen=True)
class ReadPlace:
    """What the service reads: its store, further job records beside it, and a file of prices."""

    store: str = ""
    jobs: tuple[str, ...] = ()
    prices: str = ""


@dataclass(frozen=True)
class AskedQuestion:
    """What is asked: the name of a question, and its words as they were written, in order of their names.

    `up_to_last_sample`: spans count back from the store's last sample, whatever the time of day.
    """

    name: str
    words: tuple[tuple[str, Any], ...] = ()
    up_to_last_sample: bool = False

    @property
    def served(self) -> ServedQuestion:
        """The question that it asks."""
        return SERVED[self.name]

    @property
    def by_clock(self) -> bool:
        """Whether the answer changes with the time of day, though what is read does not."""
        return self.name == "doctor" or (any(word in TIMES for word, _ in self.words) and not self.up_to_last_sample)

    def with_words(self, more: Mapping[str, Any]) -> AskedQuestion:
        """Return the request with further words; those that it has itself stay."""
        known = {field.name for field in self.served.fields}
        added = {word: value for word, value in more.items() if word in known and (word != "by" or value in self.served.keys)}
        return replace(self, words=tuple(sorted((added | dict(self.words)).items())))

    def in_window(self) -> AskedQuestion:
        """Return the request as a page asks it: of the fleet, its map or its changes, the last hours, where nothing is said of the time."""
        if self.name not in (*OF_FLEET, "watch") or any(word in TIMES for word, _ in self.words):
            return self
        return replace(self.with_words({"since": f"{PAGE_HOURS}h"}), up_to_last_sample=True)

    def given(self, place: ReadPlace, now_ms: int) -> dict[str, Any]:
        """Return the words as the question takes them, with the place that is read; spans count back from a time, and are times then."""
        words = dict(self.words)
        for name in TIMES:
            if name in words:
                words[name] = iso(moment(words[name], now_ms / 1000) or 0)
        served = self.served
        if served.place:
            words[served.place] = (place.store,) if served.place == "sources" else place.store
        if place.jobs and served.jobs:
            words["jobs"] = place.jobs
        if place.prices and served.money:
            words["price_file"] = place.prices
        return words

    def asked(self, place: ReadPlace, now_ms: int) -> Any:
        """Return the question that is asked. Raises UllageError for words that make none."""
        return self.served.question.question(self.given(place, now_ms), now_ms / 1000)


def request_of(name: str, pairs: Iterable[tuple[str, str]], **named: str) -> AskedQuestion:
    """Return what an address asks: `pairs` are its query's, `named` what stands in its path. Empty values say nothing.

    Raises UllageError for a word that may not be said, one that is said twice and is of no use so, and a value that can't be read.
    """
    served = SERVED[name]
    fields = {field.name: field for field in served.fields}
    by_flag = {field.flag.removeprefix("--"): field.name for field in served.fields}  # "price", as the command has it
    said: dict[str, Any] = {}
    for written, value in pairs:
        word = by_flag.get(written, written)
        field = fields.get(word)
        if field is not None and field.kind is bool:
            said[word] = _switch(field, value)
        elif value:
            said.setdefault(word, []).append(value)
    words = {word: _once(fields.get(word), word, value) for word, value in said.items()} | named
    for word in served.times:
        if word in words:
            _span_or_time(word, str(words[word]))
    given = words_of_fields(served.question.noun, served.fields, words, "/openapi.json")
    return AskedQuestion(name, tuple(sorted(given.items())))


def _span_or_time(word: str, text: str) -> None:
    """Refuse what is no span and no time: as another source or a file it would be read."""
    if other_time(text) is None:
        raise UllageError(
            f"{word}: '{harmless(text, 80)}' is no span and no time",
            "over a network only a span such as 7d or a time can stand beside a report",
        )


def _switch(field: Askable, value: str) -> bool:
    if value.lower() not in _SWITCHES:
        raise UllageError(f"{field.name} is true or false, not '{harmless(value, 60)}'", field.help)
    return _SWITCHES[value.lower()]


def _once(field: Askable | None, word: str, value: Any) -> Any:
    if not isinstance(value, list) or (field is not None and field.repeated):
        return value
    if len(value) > 1:
        raise UllageError(f"{harmless(word, 60)} is said {len(value)} times", "say it once")
    return value[0]
