#!/bin/sh
# Installs the tutor into a virtual environment: scripts/install.sh VENV TARGET
# TARGET is what pip installs, "." for use or ".[dev]" for development.
# Says what it does while llama.cpp compiles, and what to install when something is missing.
set -eu

venv=$1
target=$2
log=$venv/install.log
python=${PYTHON:-python3}

say() { printf '%s\n' "$*"; }
fail() { say "$@" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 ||
  fail "Python was not found. Install Python 3.11 or newer, or set PYTHON=/path/to/python3."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$($python --version) is too old: Python 3.11 or newer is needed. Set PYTHON=/path/to/python3.11 or newer."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "Python's venv module is missing. On Debian and Ubuntu: sudo apt install python3-venv"

has_wheel() {
  for folder in ${PIP_FIND_LINKS:-}; do
    ls "$folder"/llama_cpp_python-*.whl >/dev/null 2>&1 && return 0
  done
  return 1
}

is_installed() { "$venv/bin/python" -c 'import importlib.metadata as m; m.version("llama-cpp-python")' 2>/dev/null; }

need_compiler() {
  c=${CC:-}; cxx=${CXX:-}
  for name in cc gcc clang; do [ -n "$c" ] || ! command -v $name >/dev/null 2>&1 || c=$name; done
  for name in c++ g++ clang++; do [ -n "$cxx" ] || ! command -v $name >/dev/null 2>&1 || cxx=$name; done
  if [ -z "$c" ] || [ -z "$cxx" ]; then
    say "llama.cpp is compiled on your machine, and no C and C++ compiler was found." >&2
    say "  Debian, Ubuntu:  sudo apt install build-essential" >&2
    say "  Fedora, RHEL:    sudo dnf install gcc gcc-c++ make" >&2
    say "  Arch:            sudo pacman -S base-devel" >&2
    fail "  macOS:           xcode-select --install"
  fi
  say "Compilers: $c and $cxx."
}

[ -x "$venv/bin/python" ] || { say "Creating the virtual environment $venv."; "$python" -m venv "$venv"; }

if ! is_installed; then
  if has_wheel; then
    say "Using the prebuilt llama-cpp-python from PIP_FIND_LINKS."
  else
    need_compiler
    say "Compiling llama.cpp: about 14 CPU minutes, once. This line shows that it is alive:"
  fi
fi

# The multimodal part of llama.cpp is not used; leaving it out saves compile time.
CMAKE_ARGS="-DLLAVA_BUILD=OFF ${CMAKE_ARGS:-}"
export CMAKE_ARGS
"$venv/bin/python" -m pip install --disable-pip-version-check --verbose \
  -c constraints.txt -e "$target" >"$log" 2>&1 &
pip=$!
trap 'kill $pip 2>/dev/null' INT TERM

started=$(date +%s)
while kill -0 $pip 2>/dev/null; do
  sleep 1
  seconds=$(($(date +%s) - started))
  [ $((seconds % 15)) -eq 0 ] || continue
  built=$(grep -o '\[[0-9]*/[0-9]*\]' "$log" | tail -n 1 || true)
  [ "$seconds" -eq 0 ] || say "  ${seconds} s ${built:+compiled }${built:-still installing}"
done

if ! wait $pip; then
  say "The install failed. The end of $log:" >&2
  tail -n 25 "$log" >&2
  fail "Full output: $log"
fi
say "Installed in $(($(date +%s) - started)) s."
