"""Address book of a mesh on this machine: file, state folder, environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from federation.brokers.addresses import (
    BROKERS_FILE,
    AddressBook,
    AddressError,
    read_private_brokers,
    read_private_servers,
)
from federation.brokers.credentials import SECRETS_FILE, CredentialsError, load_or_make
from federation.mesh import Mesh
from federation.mesh_file import MeshFileError, PasswordMissing, read_mesh
from isthmus.known.known_meshes import KnownMeshes
from isthmus.options import EXIT_FAULT, exit_with


def address_book(mesh: Mesh, state: Path) -> AddressBook:
    """Make the address book from the state folder and the environment."""
    return AddressBook(
        mesh,
        load_or_make(state, mesh),
        read_private_brokers(state),
        os.environ,
        KnownMeshes(state).delivered_at,
        read_private_servers(state),
    )


def address_book_or_exit(mesh: Mesh, state: Path) -> AddressBook:
    """Make the address book; print an error and end the command on failure."""
    try:
        return address_book(mesh, state)
    except (AddressError, CredentialsError, PasswordMissing) as error:
        exit_with(str(error), EXIT_FAULT)


@dataclass(slots=True)
class MeshOnDisk:
    """Mesh file and state folder, to be read again at changes."""

    file: Path
    state: Path
    _parts: tuple[Path, ...] = ()
    """Files of the last reading."""

    def files(self) -> tuple[Path, ...]:
        """Return the files to watch: brokers' addresses are written after the mesh file, and
        passwords may change.
        """
        return self.file, *self._parts, self.state / BROKERS_FILE, self.state / SECRETS_FILE

    def read(self) -> AddressBook:
        """Read the mesh. Raises MeshFileError, AddressError, CredentialsError, PasswordMissing,
        OSError.
        """
        reading = read_mesh(self.file)
        self._parts = reading.files or self._parts
        if reading.mesh is None:
            raise MeshFileError(reading.problems)
        return address_book(reading.mesh, self.state)
