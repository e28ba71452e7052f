"""`isthmus keygen FILE`: make a pair of keys by which a site signs its batches."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.signing_keys import private_key_pem, public_key_text
from isthmus.options import EXIT_FAULT, AsJson, exit_with


def keygen(
    file: Annotated[
        Path, typer.Argument(help="Where the private key goes; there must be no such file yet.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys: the private one into FILE, readable only by the owner, the public one
    printed, for the mesh file.

    Example: isthmus keygen keys/paris.pem
    """
    private = Ed25519PrivateKey.generate()
    public = public_key_text(private.public_key())
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(private_key_pem(private))
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        exit_with(
            f"{file} is there already, and is left alone: batches in the logs may be signed with "
            "it. Name another file",
            EXIT_FAULT,
        )
    except OSError as error:
        exit_with(f"{file}: {error.strerror or error}", EXIT_FAULT)
    keys = {"public_key": public, "private_key": f"file:{file}"}
    if as_json:
        typer.echo(json.dumps(keys))
    else:
        for key, value in keys.items():
            typer.echo(f"{key}: {value}")
