# Sourced by deploy/test and deploy/quickstart: sets PYTHON to an interpreter that has this project installed.
#   . deploy/environment.sh [extra]        for example: . deploy/environment.sh test
# An active virtual environment is used; otherwise .venv is made. pip runs only when pyproject.toml changed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
extra=${1:-}

find_python() {
  local name
  for name in python3.11 python3 python3.12 python3.13 python3.14 python; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "surfacelog needs Python 3.11 or later on PATH" >&2
  return 1
}

prepare() {
  local home=${VIRTUAL_ENV:-$root/.venv} stamp inputs base
  if [ ! -x "$home/bin/python" ]; then
    base=$(find_python) || return 1
    echo "making an environment in $home" >&2
    "$base" -m venv "$home" || {
      echo "python -m venv failed: install your system's venv package (Debian: python3-venv)" >&2
      return 1
    }
  fi
  PYTHON=$home/bin/python
  stamp=$home/.surfacelog-installed
  # One line for each extra that was installed from this very pyproject.toml in this very folder.
  inputs=$( (cd "$root" && pwd && cat pyproject.toml) | cksum | tr ' ' '-')
  if ! grep -qsx -e "$inputs ${extra:-plain}" -e "$inputs test" "$stamp"; then
    echo "installing the project and what it needs" >&2
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
      -e "$root${extra:+[$extra]}" || return 1
    grep -qs "^$inputs " "$stamp" || : >"$stamp"
    echo "$inputs ${extra:-plain}" >>"$stamp"
  fi
  export PYTHON PATH="$home/bin:$PATH"
}

prepare
