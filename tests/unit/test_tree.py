"""The tree of files stands alone: it names no package registry and no place on somebody's machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stored logs are what they were; their texts may name anything.
RECORDED = {".zst", ".jsonl"}

# Written so that this file does not hold what it looks for.
HOSTS = re.compile(
    r"\b(?:repo1?\.maven\.(?:apache\.)?org|repo\.maven|pypi\.(?:org|python)|pythonhosted\.|registry\.npmjs|crates\.io"
    r"|proxy\.golang|(?:deb|security|ftp)\.debian\.|(?:index|registry-1|hub)\.docker\.|docker\.io/|quay\.io|gcr\.io"
    r"|ghcr\.io|pkg\.dev)".replace(r"\.", r"[.]")
)
PLACES = re.compile(r"(?<![\w.~-])/(?:work|root|opt/wheels|home/\w+)/[\w.-]")


def sources() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in RECORDED]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so that its files cannot be told from what was put beside them")
    found = {str(path.relative_to(ROOT)): path.read_text(errors="replace") for path in sources()}
    assert "pyproject.toml" in found
    return found


def offences(texts: dict[str, str], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry(texts: dict[str, str]) -> None:
    assert offences(texts, HOSTS) == []


def test_no_file_names_a_place_on_a_machine(texts: dict[str, str]) -> None:
    assert offences(texts, PLACES) == []


def test_this_checkouts_own_path_is_nowhere(texts: dict[str, str]) -> None:
    assert offences(texts, re.compile(re.escape(str(ROOT)) + r"\b")) == []


PLANTED = ["https://repo1.mav" + "en.org/x", "-i https://py" + "pi.org/x", "FROM qua" + "y.io/x/y"]


@pytest.mark.parametrize("line", PLANTED)
def test_a_registry_would_be_found(line: str) -> None:
    assert offences({"planted": line}, HOSTS)


@pytest.mark.parametrize("line", ["cd /" + "work/tree", "see '/" + "root/notes'", "open(/" + "home/ann/x)"])
def test_a_machines_path_would_be_found(line: str) -> None:
    assert offences({"planted": line}, PLACES)
