"""The process in which one decoder is fuzzed: `python -m tests.hostile.fuzz_one DECODER OPTIONS`,
with libFuzzer's options. Only `make fuzz` installs what it needs.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found,unused-ignore]

# What is imported in here tells the fuzzer which of its lines an input has reached.
with atheris.instrument_imports(include=["relay", "federation", "dedup"]):
    from tests.hostile.decoders import DECODERS

if __name__ == "__main__":
    name, *options = sys.argv[1:]
    # A shell is given this, to run parts of a merge in processes of their own.
    program = f"{sys.executable} -m tests.hostile.fuzz_one {name}"
    atheris.Setup([program, *options], DECODERS[name])
    atheris.Fuzz()
