"""Forger in a mesh's multicast group: a member without the private key of any site."""

from __future__ import annotations

import random
from dataclasses import replace

from federation.mesh import Mesh
from federation.multicast import group_agreement
from federation.signing_keys import key_id
from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.format import decode_entries, read_header, seal
from relay.batches.signature import Signer
from relay.group.carrier import GroupUnreachable
from relay.group.datagram import (
    BadDatagram,
    DatagramOpener,
    DatagramSealer,
    FramePiece,
    GroupStream,
    new_epoch,
    site_id,
)
from relay.group.publisher import decode_frame, encode_frame
from simulation.group_network import GroupNetwork
from simulation.site_keys import GROUP_KEY, private_key_of

FORGED_ONE_IN = 3
"""Share of the small frames behind which the forger sends one."""
NEVER_PUBLISHED = 1_000_000
"""Number of the first message that nobody has published."""
_OWN_KEY = "forger"
_LATE_MS = 1 << 42
"""Start of the forger's epoch, after that of any site."""


class Forger:
    """Member who sends, behind frames of other sites, the next ones of their streams, as a site
    that repairs does. The batch in such a frame has the other's name, and under the ID of the
    other's key a signature by another key.
    """

    def __init__(self, mesh: Mesh, network: GroupNetwork, chance: random.Random) -> None:
        self.forged = 0
        """Number of frames sent."""
        self._mesh = mesh
        self._chance = chance
        self._site_of = {site_id(site.cluster_id): name for name, site in mesh.sites.items()}
        agreement = group_agreement(mesh)
        self._opener = DatagramOpener(agreement, [GROUP_KEY], self._site_of)
        # As one of the sites, which nobody hears any more then: of each the latest epoch counts.
        site = chance.choice(list(self._site_of))
        self._own = GroupStream(site, new_epoch(_LATE_MS, chance.randbytes(8)))
        self._sealer = DatagramSealer(agreement, GROUP_KEY, self._own)
        self._carrier = network.join_unasked()
        self._carrier.listen(self._on_datagram)

    def close(self) -> None:
        """Leave the group."""
        self._carrier.close()

    def _on_datagram(self, datagram: bytes) -> None:
        try:
            sender, message, _ = self._opener.open(datagram)
        except BadDatagram:
            return
        if not isinstance(message, FramePiece) or sender != message.stream:
            return  # a forger behind another forger's frames would go on without an end
        is_small = message.pieces == 1 and sender.publisher != self._own.publisher
        if is_small and not self._chance.randrange(FORGED_ONE_IN):
            self._forge(message)

    def _forge(self, piece: FramePiece) -> None:
        _, batch = decode_frame(piece.data[: piece.size])
        header = read_header(batch)
        if header.kind is not BatchKind.MESSAGES or header.path != (header.name.series.origin,):
            return
        forged = self._next_batch(header, batch, self._site_of[piece.stream.publisher])
        frame = encode_frame(str(header.name), forged)
        next_piece = FramePiece(piece.stream, piece.number + 1, 0, 1, len(frame), frame)
        self.forged += 1
        try:
            self._carrier.send(self._sealer.seal(next_piece))
        except GroupUnreachable:
            self.close()

    def _next_batch(self, header: BatchHeader, batch: bytes, site: str) -> bytes:
        """Return a batch of a message that nobody published, which follows in its series."""
        name = header.name
        number = NEVER_PUBLISHED + self.forged
        body = f"{name.series.origin}/{number} forged".encode()
        like = decode_entries(batch)[0]
        entry = like._replace(identity=self._chance.randbytes(16), body=body)
        bare = replace(
            header,
            name=name._replace(sequence=name.sequence + 1),
            incarnation_sequence=header.incarnation_sequence + 1,
            entry_count=0,
            byte_count=0,
            fields=(),
        )
        key = key_id(private_key_of(site).public_key())
        signer = Signer(self._mesh.name, key, private_key_of(_OWN_KEY))
        return seal(bare, [entry], signer)[1]
