"""What a mesh file says of keys and signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import SigningRule, Unsigned
from federation.mesh_diff import mesh_diff
from federation.mesh_file import load_mesh
from federation.mesh_json import mesh_as_json, mesh_from_json
from federation.signing_keys import private_key_pem
from tests.federation.marked import the_error, the_warning
from tests.federation.meshes import TRIANGLE, errors_of, mesh_of
from tests.signed_batches import private_key, public_key

KEYS = {site: f"public_key: {public_key(site)}" for site in ("paris", "tokyo", "sydney")}
SIGNED = (
    "batch_format: 2\nsigning: ed25519\n"
    + TRIANGLE.split("sites:")[0]
    + "sites:\n"
    + "".join(f"  {site}: {{{key}, private_key: 'env:K'}}\n" for site, key in KEYS.items())
)
PARIS = f"{{{KEYS['paris']}, private_key: 'env:K'}}"
BOTH = f"public_key: [{public_key('paris')}, {public_key('paris-2')}]"


def test_a_mesh_signs_nothing_unless_told() -> None:
    mesh = mesh_of(TRIANGLE)
    assert mesh.signing is SigningRule.NONE
    assert mesh.sites["paris"].public_keys == ()


def test_keys_and_rule_are_taken_and_survive_being_kept(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text(SIGNED.replace("env:K", "file:keys/{site}.pem"))
    mesh = load_mesh(tmp_path / "mesh.yaml")
    assert (mesh.signing, mesh.unsigned) == (SigningRule.ED25519, Unsigned.REFUSE)
    assert mesh.sites["paris"].public_keys == (public_key("paris"),)
    assert mesh.sites["paris"].private_key == f"file:{tmp_path}/keys/paris.pem"
    assert mesh_from_json(mesh_as_json(mesh)) == mesh


def test_keys_are_part_of_the_revision_and_where_the_file_lies_is_not(tmp_path: Path) -> None:
    mesh = mesh_of(SIGNED)
    rotating = mesh_of(SIGNED.replace(KEYS["paris"], BOTH))
    assert len({mesh.revision, rotating.revision, mesh_of(TRIANGLE).revision}) == 3
    accepts = mesh_of("unsigned: accept\n" + SIGNED)
    assert accepts.revision != mesh.revision
    revisions = set()
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        (folder / "mesh.yaml").write_text(SIGNED.replace("env:K", "file:k.pem"))
        revisions.add(load_mesh(folder / "mesh.yaml").revision)
    assert len(revisions) == 1


def test_nobody_repairs_for_others_in_a_mesh_that_signs_unless_told() -> None:
    assert mesh_of(TRIANGLE).repairs_for_others("tokyo")
    assert not mesh_of(SIGNED).repairs_for_others("tokyo")
    some = mesh_of("repairs_from: tokyo\n" + SIGNED)
    assert (some.repairs_for_others("tokyo"), some.repairs_for_others("paris")) == (True, False)
    assert mesh_from_json(mesh_as_json(some)) == some
    assert some.revision != mesh_of(SIGNED).revision
    assert "~ repairs_from none -> tokyo" in mesh_diff(mesh_of(SIGNED), some)
    assert "~ repairs_from all -> none" in mesh_diff(mesh_of(TRIANGLE), mesh_of(SIGNED))


def test_what_changes_is_told() -> None:
    rotating = mesh_of("unsigned: accept\n" + SIGNED.replace(KEYS["paris"], BOTH))
    lines = mesh_diff(mesh_of(SIGNED), rotating)
    assert any(line.startswith("~ site paris: public_key") for line in lines)
    assert "~ unsigned refuse -> accept" in lines
    assert "~ signing none -> ed25519" in mesh_diff(mesh_of(TRIANGLE), mesh_of(SIGNED))


def of_paris(keys: str) -> str:
    return SIGNED.replace(PARIS, keys)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (
            SIGNED.replace("batch_format: 2\n", "").replace("ed25519", "^ed25519"),
            "batches of format 1 have no room for a signature; write batch_format: 2",
        ),
        (
            "^repairs_from: [paris]\n" + TRIANGLE,
            "`repairs_from` where nothing is signed: all sites' repairs are taken; add signing",
        ),
        ("repairs_from: [^pari]\n" + SIGNED, "there is no site `pari`; did you mean `paris`?"),
        (
            f"revoked_keys: {public_key('paris')}\n"
            + SIGNED.replace(KEYS["paris"], f"public_key: ^{public_key('paris')}"),
            "this public key is among `revoked_keys`; give `paris` another pair",
        ),
        (
            f"^revoked_keys: {public_key('paris')}\n" + TRIANGLE,
            "`revoked_keys` where nothing is signed",
        ),
        ("unsigned: ^maybe\n" + SIGNED, "`maybe` is not known here; write one of refuse"),
        (
            "^unsigned: accept\n" + TRIANGLE,
            "`unsigned` where nothing is signed; add signing: ed25519",
        ),
        (
            SIGNED.replace("signing: ed25519", "signing: ^rsa"),
            "`rsa` is not known here; write one of none, ed25519",
        ),
        (
            of_paris("{}").replace("paris:", "^paris:"),
            "`paris` has no `public_key`; run `isthmus keygen`",
        ),
        (of_paris("{public_key: ^paris, private_key: 'env:K'}"), "no public key: it is no base64"),
        (
            of_paris(f"{{^{KEYS['paris']}}}"),
            "`paris` has a public key and no `private_key`; add private_key: file:PATH",
        ),
        (
            "unsigned: accept\n" + of_paris("{^private_key: 'env:K'}"),
            "a `private_key` without its `public_key`",
        ),
        (
            of_paris(f"{{{KEYS['paris']}, private_key: ^secretsecret}}"),
            "this names no private key; write env:NAME or file:PATH, and never the key itself",
        ),
        (
            of_paris(f"{{public_key: [{public_key('tokyo')}], private_key: 'env:K'}}").replace(
                f"tokyo: {{public_key: {public_key('tokyo')}",
                f"tokyo: {{public_key: ^{public_key('tokyo')}",
            ),
            "this is a public key of site `paris` too; give each site its own",
        ),
        (
            of_paris(
                f"{{public_key: ^[{', '.join(map(public_key, 'abc'))}], private_key: 'env:K'}}"
            ),
            "3 public keys; write at most 2",
        ),
        (
            of_paris(
                f"{{public_key: ^[{public_key('a')}, {public_key('a')}], private_key: 'env:K'}}"
            ),
            "the same public key twice; keep one of them",
        ),
    ],
)
def test_what_is_wrong_with_keys_is_told(marked: str, said: str) -> None:
    assert said in the_error(marked)


def test_a_private_key_that_is_taken_for_a_public_one_is_not_quoted() -> None:
    line = private_key_pem(private_key("paris")).decode().splitlines()[1]
    (told,) = errors_of(of_paris(f"{{public_key: {line}, private_key: 'env:K'}}"))
    assert "this is a private key" in told.wrong
    assert line not in str(told)


def test_a_file_that_takes_what_is_not_signed_is_warned_of() -> None:
    assert "any site can send in another's name" in the_warning("unsigned: ^accept\n" + SIGNED)
    # That is when a site may lack its key.
    assert not errors_of("unsigned: accept\n" + of_paris("{}"))


def test_keys_without_signing_are_warned_of() -> None:
    text = TRIANGLE.replace("tokyo: {}", f"tokyo: {{^{KEYS['tokyo']}, private_key: 'env:K'}}")
    assert "a `public_key` where nothing is signed" in the_warning(text)
