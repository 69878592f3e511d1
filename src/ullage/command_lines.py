"""Command lines of programs, without the passwords, keys and tokens that people write into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ullage.errors import public

HIDDEN = "…"
# names of options, variables and headers whose value is secret: api_key, --hf-token, clientSecret, SSHPASS, Authorization
_SECRET = re.compile(r"secret|passw|passphrase|credential|authorization|(?:keys?|token|pass)$|(?:^|[^a-z])(?:pwd|o?auth)$", re.IGNORECASE)
_PIECES = re.compile(r"""\s+|(?:"[^"]*"|'[^']*'|[^\s"'])+|["']""")  # of a word: blanks, and what a shell would take for a word
_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")
_SIGN = re.compile("[=:]")
_URL = re.compile(r"""[a-z][a-z0-9+.-]{0,30}://[^\s"']+""", re.IGNORECASE)
_SCHEMES = ("bearer", "basic", "token")  # what stands before the secret of a header


def public_command(words: Iterable[str]) -> str:
    """Return a command line, given as its words, without what is secret in it: `HIDDEN` stands in its place.

    Hidden are values of options, variables and fields whose names say that they are secret, and what `errors.public` hides of a URL.
    A word that is a command line itself (`bash -c "…"`, a process that renamed itself) is read as one. A secret that no name
    announces can't be known (`mysql -pSECRET`), nor one that begins like an option (`--token --SECRET`): both are shown.

    >>> public_command(["env", "WANDB_API_KEY=1f", "python", "train.py", "--token", "ab", "--max-tokens", "64", "lr=0.1"])
    'env WANDB_API_KEY=… python train.py --token … --max-tokens 64 lr=0.1'
    >>> public_command(["curl", "-H", "Authorization: Bearer ab", "https://me:pw@host/x"])
    'curl -H Authorization:… https://…@host/x'
    """
    return " ".join(_public_words(words))


def _public_words(words: Iterable[str]) -> Iterator[str]:
    """Yield words of a command line, blanks among them or not, without what is secret."""
    hidden, before = False, ""
    for word in words:
        if not word or word.isspace():
            yield word
        elif hidden and not word.startswith("--"):
            hidden = word.casefold() in _SCHEMES
            yield HIDDEN
        else:
            hidden = _is_before_secret(word if word.strip("=:") else before + word)  # the sign may stand apart: `TOKEN = …`
            before = word
            yield _public_word(word)


def _is_before_secret(word: str) -> bool:
    """Return whether the next word is secret: after `--token`, `TOKEN=`, `Authorization:`."""
    return _is_secret(word) and (word[-1] in "=:" or (word[0] == "-" and not _SIGN.search(word)))


def _is_secret(name: str) -> bool:
    """Return whether a name, with whatever signs stand around it, is of something secret."""
    return _SECRET.search(name.rstrip("\"'=:0123456789_ ])}")) is not None


def _public_word(word: str) -> str:
    """Return a word, which may hold a command line, without what is secret; every step is linear in its length."""
    word = _URL.sub(lambda found: public(found[0]), word)
    pieces = _PIECES.findall(word)
    start = 0
    for sign in _SIGN.finditer(word):
        name, start = word[start : sign.start()], sign.end()
        if len(pieces) > 1 and name.split() != [name.strip()]:  # a word within: it is among the pieces
            break
        if start < len(word) and _is_secret(name):
            return word[:start] + HIDDEN
    if len(pieces) > 1:
        return "".join(_public_words(pieces))
    return _QUOTED.sub(lambda found: f"{found[0][0]}{''.join(_public_words(_PIECES.findall(found[0][1:-1])))}{found[0][0]}", word)
