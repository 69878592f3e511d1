"""Where certificates are kept: one small JSON file a configuration, believed only as long as configuration and formula are the same."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import find
from ullage.models.tracing.certificate import Certificate, ComparedTrial, Difference, config_hash, formula_hash, record

LARGEST = 4 << 20  # bytes of a certificate


def folder() -> Path:
    """Return where certificates lie: $ULLAGE_CERTIFICATES, else under the user's data home."""
    named = os.environ.get("ULLAGE_CERTIFICATES")
    if named:
        return Path(named)
    home = os.environ.get("XDG_DATA_HOME")
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "ullage" / "certificates"


def store(certificate: Certificate, where: Path | None = None) -> Path:
    """Write a certificate, whole or not at all, and return its file."""
    file = _file(certificate.family, certificate.config_hash, where)
    text = json.dumps(record(certificate), indent=1, ensure_ascii=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as draft:
                draft.write(text + "\n")
                draft.flush()
                os.fsync(draft.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UllageError(f"the certificate can't be written to {file}: {error.strerror}", "set ULLAGE_CERTIFICATES to a folder") from None
    return file


def stored(config: Config, kind: str | None = None, where: Path | None = None) -> Certificate | None:
    """Return the certificate of a configuration, if there is one and both its configuration and its formula are still the same."""
    model, _ = find(config, kind)
    own = config_hash(config)
    certificate = _read(_file(model.family, own, where))
    if certificate is None or certificate.config_hash != own or certificate.family != model.family:
        return None
    return certificate if certificate.formula_hash == formula_hash(model.module) else None


def _file(family: str, digest: str, where: Path | None) -> Path:
    return (where or folder()) / f"{family}-{digest[:16]}.json"


def _read(file: Path) -> Certificate | None:
    """Return what a file holds; one that is damaged is as good as none, for it can be made again."""
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            return None
        values = json.loads(file.read_bytes())
        return _certificate(values)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _certificate(values: Mapping[str, Any]) -> Certificate:
    fields = {name: values[name] for name in ("architecture", "family", "config_hash", "formula_hash", "date")}
    if not all(isinstance(value, str) for value in fields.values()):
        raise TypeError("words are expected")
    done = tuple(ComparedTrial(**c) for c in values["compared"])
    found = tuple(Difference(**{**d, "terms": tuple(d["terms"])}) for d in values["differences"])
    certificate = Certificate(**fields, versions=dict(values["versions"]), compared=done, differences=found)
    if certificate.equal != values["equal"] or (certificate.equal and any(c.forward != c.traced_forward for c in done)):
        raise ValueError("a certificate contradicts itself")
    return certificate
