"""As whom nodes log in: a site's password at others' brokers, users of each purpose. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.problems import Severity
from federation.mesh_file.topologies import declared_links, shape_of
from federation.mesh_file.violation import Violation

_REFERENCE = re.compile(r"env:[^\s]+|file:[^\s].*")
_NAMED = 3


def reference_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Each `link_password` that is no reference. In clear it is refused: every site reads this
    file, and one site's is no other's affair.
    """
    for name, site in keys.sites.items():
        if site.link_password is not None and not _REFERENCE.fullmatch(site.link_password):
            yield Violation(
                ("sites", name, "link_password"),
                "this names no place where the password is",
                "write env:NAME or file:PATH",
            )


def separate_users_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Each `users: separate` where nobody could make them: that takes the management API."""
    for name, site in keys.sites.items():
        if site.users != "separate":
            continue
        if site.broker is None:
            wrong = "`users: separate` without a `broker` they are for"
            mend = "take it out: a private broker has them anyway"
        elif site.management is None:
            wrong = "`users: separate` without a `management` where they could be made"
            mend = "add management: https://HOST"
        else:
            continue
        depends_on = ("broker", "management")
        yield Violation(("sites", name, "users"), wrong, mend, True, depends_on=depends_on)


def shared_password_violations(keys: MeshKeys) -> Iterator[Violation]:
    """A warning for each broker of one's own whose password other sites would have to hold."""
    shape = shape_of(keys)
    holders: dict[str, list[str]] = {}
    for link in declared_links(keys, keys.sites, shape).values():
        meeting = keys.sites[link.meeting]
        if meeting.broker is None or meeting.auth == "external":
            continue
        for end in (link.sender, link.receiver):
            site = keys.sites[end]
            # The same words everywhere: who wrote them means one password for all.
            is_shared = site.broker is not None and site.password == meeting.password
            if end != link.meeting and site.link_password is None and not is_shared:
                found = holders.setdefault(link.meeting, [])
                if end not in found:
                    found.append(end)
    for name, ends in holders.items():
        more = f" and {len(ends) - _NAMED} more" if len(ends) > _NAMED else ""
        named = ", ".join(f"`{end}`" for end in ends[:_NAMED])
        yield Violation(
            ("sites", name, "broker"),
            f"{named}{more} would have to hold the password of this broker, since links meet here",
            "give those sites link_password: env:NAME or file:PATH, a password of their own to "
            "show here",
            severity=Severity.WARNING,
            depends_on=("password",),
        )
