"""`isthmus keygen FILE`: make the keys by which a site signs batches, or that of a group."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.group_key import new_group_key
from federation.signing_keys import private_key_pem, public_key_text
from isthmus.options import EXIT_FAULT, AsJson, exit_with


def keygen(
    file: Annotated[
        Path, typer.Argument(help="Where the secret key goes; there must be no such file yet.")
    ],
    group: Annotated[
        bool,
        typer.Option(
            "--group", help="Make the key of a multicast group, the same for all of its sites."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys: the private one into FILE, readable only by the owner, the public one
    printed, for the mesh file. With --group, make the one key of a multicast group.

    Examples:

    isthmus keygen keys/paris.pem

    isthmus keygen --group keys/group.key
    """
    if group:
        _write(file, f"{new_group_key()}\n".encode(), "the sites of a group may use it")
        keys = {"key": f"file:{file}"}
    else:
        private = Ed25519PrivateKey.generate()
        _write(file, private_key_pem(private), "batches in the logs may be signed with it")
        public = public_key_text(private.public_key())
        keys = {"public_key": public, "private_key": f"file:{file}"}
    if as_json:
        typer.echo(json.dumps(keys))
    else:
        for key, value in keys.items():
            typer.echo(f"{key}: {value}")


def _write(file: Path, content: bytes, use: str) -> None:
    """Write a secret into a new file, for its owner alone; end the command if there is one."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        exit_with(
            f"{file} is there already, and is left alone: {use}. Name another file", EXIT_FAULT
        )
    except OSError as error:
        exit_with(f"{file}: {error.strerror or error}", EXIT_FAULT)
