"""Certificates of a server at 127.0.0.1 and of a client, made by RabbitMQ's Erlang."""

from __future__ import annotations

import subprocess
from pathlib import Path

from isthmus.local_brokers import RabbitMQInstallation

_MAKE_CERTIFICATES = """
    Key = {key, {namedCurve, secp256r1}}, Sha = {digest, sha256},
    Names = {'Extension', {2,5,29,17}, false, [{iPAddress, <<127,0,0,1>>}]},
    #{server_config := S, client_config := C} = public_key:pkix_test_data(#{
        server_chain => #{root => [Key, Sha], intermediates => [],
                          peer => [Key, Sha, {extensions, [Names]}]},
        client_chain => #{root => [Key, Sha], intermediates => [], peer => [Key, Sha]}}),
    Pem = fun(File, Entries) ->
        Marked = [{T, D, not_encrypted} || {T, D} <- Entries],
        ok = file:write_file(File, public_key:pem_encode(Marked))
    end,
    {Type, Der} = proplists:get_value(key, S),
    Pem("FOLDER/server.pem", [{'Certificate', proplists:get_value(cert, S)}, {Type, Der}]),
    Pem("FOLDER/roots.pem", [{'Certificate', D} || D <- proplists:get_value(cacerts, C)]),
    {ClientType, ClientDer} = proplists:get_value(key, C),
    Pem("FOLDER/client.pem", [{'Certificate', proplists:get_value(cert, C)}]),
    Pem("FOLDER/client-key.pem", [{ClientType, ClientDer}]),
    Pem("FOLDER/client-roots.pem", [{'Certificate', D} || D <- proplists:get_value(cacerts, S)]),
    halt().
"""


def make_certificates(rabbitmq: RabbitMQInstallation, folder: Path) -> tuple[Path, Path]:
    """(the server's certificate and key in one PEM file, the authority's certificate). In the same
    folder `client.pem` and `client-key.pem`, and `client-roots.pem` for the server to trust it.
    """
    code = _MAKE_CERTIFICATES.replace("FOLDER", str(rabbitmq.path_inside(folder)))
    made = subprocess.run(
        rabbitmq.command(folder, "erl", "-noshell", "-eval", code),
        env={"PATH": rabbitmq.search_path(), "HOME": str(rabbitmq.path_inside(folder))},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 0, made.stdout.decode() + made.stderr.decode()
    return folder / "server.pem", folder / "roots.pem"
