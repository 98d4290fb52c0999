"""k3s' port 6443: TLS with k3s' own authority, and behind it the API server of the tests.

`front.py CLUSTER-FOLDER TLS-FOLDER`. Who shows a client certificate of that authority acts as the
cluster's administrator, as with the kubeconfig that k3s writes; who shows none is a machine that
wants to join (supervisor.py). Standard library only.
"""

import asyncio
import os
import signal
import socket
import ssl
import sys
from pathlib import Path

from cluster import NODE, Socket, administrator, renew  # pyright: ignore # beside this file
from supervisor import answer  # pyright: ignore # this one too

BLOCK = 65536


def authority(folder: Path) -> ssl.SSLContext:
    """A client certificate is of this authority, or there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while block := await source.read(BLOCK):
        target.write(block)
        await target.drain()


async def main(cluster: Path, tls: Path) -> None:
    inside = administrator(cluster)
    there = {"path": str(cluster / "api.sock"), "ssl": inside, "server_hostname": "localhost"}

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not writer.get_extra_info("peercert"):
            await supervise(reader, writer)
            return
        their_reader, their_writer = await asyncio.open_unix_connection(**there)
        ways = [
            asyncio.create_task(copy(reader, their_writer)),
            asyncio.create_task(copy(their_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        their_writer.close()

    async def supervise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        pairs = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        status, text = await asyncio.to_thread(answer, cluster, tls, head[0].split()[1], headers)
        content = text.encode()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(content)}\r\n\r\n".encode())
        writer.write(content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(pass_on, "0.0.0.0", 6443, ssl=authority(tls))
    notify()
    await server.serve_forever()


def notify() -> None:
    """Tell systemd that the service is up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        systemd.send(b"READY=1")


def end(cluster: Path) -> None:
    """The kubelet in k3s renews its lease up to the end; no later renewal is possible than this."""
    try:
        renew(Socket(cluster / "api.sock", administrator(cluster)), NODE)
    finally:
        os._exit(0)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: end(folder))
    asyncio.run(main(folder, Path(sys.argv[2])))
