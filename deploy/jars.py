"""The broker's jars, brought once by Maven into a cache that all runs of this user share."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.child import Prerequisite, ServerFailed

__all__ = ["JAVA_VERSION_MIN", "bring_jars", "find_java"]

POM = Path(__file__).parent / "kafka" / "pom.xml"
JAVA_VERSION_MIN = 17
STEP = "fetching Kafka through Maven, once"


def find_java() -> str:
    """The `java` to run a broker with; raises Prerequisite when there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise Prerequisite(f"Kafka needs Java {JAVA_VERSION_MIN} or later: install a JRE, or use Docker")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        found = version[1] if version else "unknown"
        raise Prerequisite(f"Kafka needs Java {JAVA_VERSION_MIN} or later, found {found}: install a newer JRE")
    return java


def bring_jars(report: Callable[[str], None] = lambda _: None, cache: Path | None = None) -> Path:
    """The folder that holds the jars; `report` hears what is being fetched. Safe when several processes call it
    at once. Raises Prerequisite without Maven, ServerFailed when Maven fails."""
    cache = cache or _user_cache()
    name = f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"
    jars = cache / name
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise Prerequisite("the broker's jars come through Maven: install Maven, or use Docker")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{name}.lock"):
        if not jars.is_dir():
            _fetch(maven, jars, report)
    return jars


def _user_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "surfacelog"


def _fetch(maven: str, jars: Path, report: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=f"{jars.name}.") as scratch:
        # Maven gets a copy, since it may write beside the file and a package's folder may be read-only.
        pom = Path(shutil.copy(POM, scratch))
        fresh = Path(scratch) / "jars"
        command = [maven, "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={fresh}", "-Dorg.slf4j.simpleLogger.showDateTime=false"]
        with subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            lines: list[str] = []
            files = 0
            for line in process.stdout:
                lines.append(line.rstrip())
                files += line.startswith(("[INFO] Downloaded", "[INFO] Copying"))
                report(f"{STEP}: {files} files")
        if process.returncode != 0:
            raise ServerFailed("Maven could not bring the broker's jars:\n" + "\n".join(lines[-15:]))
        fresh.rename(jars)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
