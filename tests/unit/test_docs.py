"""What the documents say of the code is so: tests, codes, commands and links exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import app
from gateway.settings import GatewaySettings
from gateway.status import HTTP_CODES, status_of
from producer.limits import AppendLimits
from producer.settings import ServerSettings
from projector.settings import ProjectorSettings
from surfacelog.errors import CONTRACT_CODES, PROTOCOL_CODES

ROOT = Path(__file__).parents[2]
SETTINGS = (ServerSettings, GatewaySettings, ProjectorSettings, AppendLimits)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_every_setting_is_in_the_documents(kind: type[Any]) -> None:
    told = {name for document in DOCUMENTS for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", document.read_text())}
    assert {field.upper() for field in kind.__struct_fields__} <= told


def missing_tests(text: str) -> list[str]:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert named
    return [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists()
        or not re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]


def test_every_promise_names_tests_that_exist() -> None:
    assert missing_tests((ROOT / "docs" / "PROMISES.md").read_text()) == []


def test_a_promise_without_its_test_would_be_found() -> None:
    assert missing_tests("`tests/unit/test_docs.py::test_that_nobody_wrote`")


def test_every_code_is_explained_with_its_status() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    for code in (*PROTOCOL_CODES, *HTTP_CODES):
        assert f"| `{code}` | {status_of(code)} |" in text
    for code in CONTRACT_CODES:
        assert f"| `{code}` |" in text


def test_every_command_in_the_readme_exists() -> None:
    text = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"surfacelog ([a-z]+)", "\n".join(code_of(text))))
    assert {"serve", "project", "create", "append"} <= commands
    assert commands <= {name for name in app if not name.startswith("-")}


def code_of(text: str) -> list[str]:
    return [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


async def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    body = "".join(f"    {line}\n" for line in block[1].splitlines())
    scope: dict[str, Any] = {}
    exec(f"async def run():\n{body}", scope)  # noqa: S102 - it is our own
    await scope["run"]()
    assert "hello" in capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        assert target.startswith("https://") or (document.parent / target).exists(), target
