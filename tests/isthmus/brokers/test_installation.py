"""Finding RabbitMQ: trees, chroots, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.brokers.errors import RabbitMQNotFoundError
from isthmus.brokers.installation import find_installation
from isthmus.brokers.local_brokers import needed_plugins


def make_tree(library: Path, version: str) -> Path:
    tree = library / f"rabbitmq_server-{version}"
    (tree / "sbin").mkdir(parents=True)
    (tree / "sbin" / "rabbitmq-server").touch()
    (tree / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return tree


@pytest.fixture
def erlang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for word in ("erl", "epmd"):
        (programs / word).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.usefixtures("erlang")
def test_the_newest_of_the_installed_servers_is_taken(tmp_path: Path):
    for version in ("3.9.29", "3.12.1", "3.10.8"):
        make_tree(tmp_path / "lib", version)
    found = find_installation(library=tmp_path / "lib")
    assert (found.version, found.release) == ("3.12.1", (3, 12, 1))
    assert found.home.name == "rabbitmq_server-3.12.1"
    assert found.command(tmp_path, "epmd") == ("epmd",)


@pytest.mark.usefixtures("erlang")
def test_a_folder_with_a_server_in_it_is_a_tree(tmp_path: Path):
    tree = make_tree(tmp_path, "4.1.0").rename(tmp_path / "mine")
    assert find_installation(tree).version == "4.1.0"


def test_a_whole_debian_is_entered_by_chroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "rabbitmq-server").touch()
    make_tree(tmp_path / "usr/lib/rabbitmq/lib", "4.0.5")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(RabbitMQNotFoundError, match="only root"):
        find_installation(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    found = find_installation(tmp_path)
    assert found.chroot == tmp_path
    assert str(found.home) == "/usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5"
    assert found.home_outside.is_dir()
    words = found.command(Path("/state"), "epmd", "-port", "1")
    assert words[-3:] == ("epmd", "-port", "1")
    assert str(tmp_path) in words


def test_nothing_installed_says_what_to_install(tmp_path: Path):
    with pytest.raises(RabbitMQNotFoundError, match="apt-get install rabbitmq-server"):
        find_installation(library=tmp_path)
    with pytest.raises(RabbitMQNotFoundError, match="has no RabbitMQ server in it") as caught:
        find_installation(tmp_path)
    assert tmp_path / "sbin" in caught.value.looked_in


@pytest.mark.usefixtures("erlang")
def test_a_server_older_than_3_10_is_refused(tmp_path: Path):
    make_tree(tmp_path, "3.9.29")
    with pytest.raises(RabbitMQNotFoundError, match=r"3\.9\.29 is too old"):
        find_installation(library=tmp_path)


def test_a_server_without_erlang_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_tree(tmp_path, "3.10.8")
    monkeypatch.setattr("shutil.which", lambda word, path: None)
    with pytest.raises(RabbitMQNotFoundError, match="no erl and no epmd in PATH"):
        find_installation(library=tmp_path)


def make_plugin(plugins: Path, name: str, needs: str) -> None:
    folder = plugins / f"{name}-1.2.3" / "ebin"
    folder.mkdir(parents=True)
    (folder / f"{name}.app").write_text(f"{{application, {name}, [\n{{applications, [{needs}]}}]}}")


def test_only_what_a_plugin_needs_is_taken(tmp_path: Path):
    make_plugin(tmp_path, "rabbit", "kernel, stdlib,\n ra")
    make_plugin(tmp_path, "ra", "kernel")
    make_plugin(tmp_path, "rabbitmq_prelaunch", "kernel")
    make_plugin(tmp_path, "rabbitmq_stream", "rabbit, osiris")
    make_plugin(tmp_path, "osiris", "ra,rabbit")
    make_plugin(tmp_path, "rabbitmq_mqtt", "rabbit")
    assert needed_plugins(tmp_path, ["rabbitmq_stream"]) == [
        "osiris-1.2.3",
        "ra-1.2.3",
        "rabbit-1.2.3",
        "rabbitmq_prelaunch-1.2.3",
        "rabbitmq_stream-1.2.3",
    ]


def test_packed_plugins_cannot_be_told_apart(tmp_path: Path):
    make_plugin(tmp_path, "rabbit", "kernel")
    make_plugin(tmp_path, "rabbitmq_prelaunch", "kernel")
    (tmp_path / "rabbitmq_stream-1.2.3.ez").touch()
    assert needed_plugins(tmp_path, ["rabbitmq_stream"]) == []
