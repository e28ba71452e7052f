"""The control interface of a proxy in a process of its own: JSON lines over loopback TCP.

    -> {"do": "set", "line": "paris", "condition": "ISDN_64K"}
    <- {"ok": true}
    -> {"do": "cut", "line": "oslo"}
    <- {"error": "line='oslo': use one of paris"}

| do | with | answer |
|---|---|---|
| open | line, target "host:port", [condition], [port] | port |
| end | line | |
| set | line, condition (a preset's name, or an object) | |
| cut | line, [way], [forget], [new_connects] | |
| heal, reset, close | line | |
| half_open | line, kept | |
| statistics | line | statistics |
| lines | | lines: {name: {port, target, condition, cut}} |

A request that cannot be done is answered with `error` and changes nothing.
"""

import asyncio
import json
from typing import Any

from wan_proxy.condition import ConditionError, LineCondition
from wan_proxy.line import ProxiedLine
from wan_proxy.proxy import WanProxy


class ControlServer:
    """Server of control requests for one proxy, until closed."""

    def __init__(self, proxy: WanProxy) -> None:
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> int:
        """Listen on loopback; return the port. Raise OSError for a port in use."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop listening and disconnect all clients."""
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._clients):
                writer.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            while request := await reader.readline():
                answer = await self._answer(request)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            return  # the client is gone
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _answer(self, request: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(request)
            if not isinstance(fields, dict):
                raise ConditionError("request", fields, "give an object")
            return {"ok": True, **await self._do(fields)}
        except KeyError as missing:
            return {"error": f"the request lacks {missing}"}
        except (ValueError, TypeError, OSError) as error:
            return {"error": str(error)}

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        do = request["do"]
        if do == "lines":
            return {"lines": {name: _describe(line) for name, line in self._proxy.lines.items()}}
        name = request["line"]
        if do == "open":
            host, port = parse_address(request["target"])
            condition = LineCondition.from_json(request.get("condition", "LAN"))
            line = await self._proxy.open_line(
                name, host, port, condition, port=request.get("port", 0)
            )
            return {"port": line.port}
        if do == "end":
            await self._proxy.close_line(name)
            return {}
        line = self._proxy.line(name)
        match do:
            case "set":
                line.set(LineCondition.from_json(request["condition"]))
            case "cut":
                line.cut(
                    request.get("way", "both"),
                    forget=request.get("forget", False),
                    new_connects=request.get("new_connects", "held"),
                )
            case "heal":
                line.heal()
            case "reset":
                line.reset()
            case "close":
                line.close()
            case "half_open":
                line.half_open(request["kept"])
            case "statistics":
                return {"statistics": line.statistics().to_json()}
            case _:
                raise ConditionError(
                    "do", do, "see the table in benchmarks/proxy_process/control.py"
                )
        return {}


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`. Raise ConditionError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConditionError("target", text, "give host:port")
    return host, int(port)


def _describe(line: ProxiedLine) -> dict[str, Any]:
    host, port = line.target
    return {
        "port": line.port,
        "target": f"{host}:{port}",
        "condition": line.condition.to_json(),
        "cut": line.is_cut,
    }
