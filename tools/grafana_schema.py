"""Make the JSON schemas by which tests check dashboards, from the types that Grafana Labs publishes (@grafana/schema, Apache-2.0).

python tools/grafana_schema.py 10.1.9 13.2.3      needs npm and its registry; writes tests/dashboards/schemas/
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1] / "tests" / "dashboards" / "schemas"
GENERATOR = "ts-json-schema-generator@2"
PARTS = {  # what a dashboard holds as plain data, by the file that declares its type
    "Dashboard": ("dashboard", "Dashboard"),
    "StatOptions": ("composable/stat/panelcfg", "Options"),
    "TimeseriesOptions": ("composable/timeseries/panelcfg", "Options"),
    "TimeseriesFieldConfig": ("composable/timeseries/panelcfg", "FieldConfig"),
    "BargaugeOptions": ("composable/bargauge/panelcfg", "Options"),
    "TableOptions": ("composable/table/panelcfg", "Options"),
}


def schemas(version: str, folder: Path) -> dict[str, object]:
    """Return a schema for each of `PARTS`, as a version of Grafana has it."""
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", f"@grafana/schema@{version}", GENERATOR]
    subprocess.run(install, cwd=folder, check=True)
    (folder / "tsconfig.json").write_text('{"compilerOptions": {"strict": true, "skipLibCheck": true}, "include": ["*.ts"]}')
    made = {name: _schema(folder, place, kind) for name, (place, kind) in PARTS.items()}
    return {"$comment": f"made from @grafana/schema {version} (Grafana Labs, Apache-2.0) by tools/grafana_schema.py", **made}


def _schema(folder: Path, place: str, kind: str) -> dict[str, object]:
    """Return the schema of one type: each is asked for alone, since files have types of the same name."""
    raw = folder / "node_modules" / "@grafana" / "schema" / "dist"
    file, *_ = sorted(path for path in raw.rglob("*.d.ts") if f"raw/{place}/x/" in path.as_posix())
    file.write_text(file.read_text().replace("(string | false)", "(string | boolean)"))  # which the generator takes for `false`
    module = file.relative_to(folder).as_posix().removesuffix(".d.ts")
    (folder / "part.ts").write_text(f'import type * as part from "./{module}";\nexport type Part = part.{kind};\n')
    words = ["npx", "ts-json-schema-generator", "--path", "part.ts", "--tsconfig", "tsconfig.json", "--type", "Part", "--no-type-check"]
    made = subprocess.run([*words, "--no-top-ref"], cwd=folder, check=True, capture_output=True).stdout
    return without_prose(json.loads(made))


def without_prose(schema: Any) -> Any:
    """Return a schema without the descriptions, which are long."""
    if isinstance(schema, list):
        return [without_prose(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_prose(value) for name, value in schema.items() if name != "description" or not isinstance(value, str)}


if __name__ == "__main__":
    HOME.mkdir(exist_ok=True)
    for wanted in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as temporary:
            found = schemas(wanted, Path(temporary))
        (HOME / f"grafana-{wanted}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
