"""The stand-in's port 6443: TLS with k3s' own authority, and behind it the tests' API server.

It runs as `front.py CLUSTER-FOLDER TLS-FOLDER NODE ADDRESS ETCD-PID`; ETCD-PID is 0 if there is no
etcd. A client with a certificate of that authority acts as the cluster's administrator, as with the
kubeconfig that k3s writes. A client without a certificate is a machine that wants to join
(supervisor.py). With etcd (member.py), a client gets no answer while etcd has no majority of its
members, and this process ends when its etcd ends. It uses only the standard library.
"""

import asyncio
import os
import signal
import ssl
import sys
from contextlib import suppress
from pathlib import Path

import member  # pyright: ignore # beside this file on the test host
from cluster import Socket, administrator, notify, renew  # pyright: ignore # this one
from members import look_after  # pyright: ignore # and this one
from supervisor import answer  # pyright: ignore # this one too

BLOCK = 65536
LOOK_SECONDS = 0.5  # how often the members are checked and promoted; k3s does it every 15 s


def authority(folder: Path) -> ssl.SSLContext:
    """TLS settings for a server whose clients may show a certificate of this authority, or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while block := await source.read(BLOCK):
        target.write(block)
        await target.drain()


async def main(cluster: Path, tls: Path, node: str, address: str, etcd_pid: int) -> None:
    inside = administrator(cluster)
    there = {"path": str(cluster / "api.sock"), "ssl": inside, "server_hostname": "localhost"}

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not writer.get_extra_info("peercert"):
            await supervise(reader, writer)
            return
        if etcd_pid and not await asyncio.to_thread(member.votes):
            writer.close()
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
    looking = asyncio.create_task(be_a_server(cluster, node, address, etcd_pid))
    await server.serve_forever()
    await looking


async def be_a_server(cluster: Path, node: str, address: str, etcd_pid: int) -> None:
    """Do the work of one server among several until its etcd ends, and end then."""
    while etcd_pid:
        with suppress(OSError):
            await asyncio.to_thread(look_after, cluster, node, address)
        ended, status = os.waitpid(etcd_pid, os.WNOHANG)
        if ended:
            if os.waitstatus_to_exitcode(status) == 0:  # etcd ends so if its member was removed
                member.TOMBSTONE.touch()
            print(f'level=fatal msg="etcd has ended ({status})"', flush=True)
            os._exit(1)
        await asyncio.sleep(LOOK_SECONDS)


def end(cluster: Path, node: str, etcd_pid: int) -> None:
    """Renew the node's Lease a last time, as the kubelet in k3s would, and end with the etcd."""
    try:
        renew(Socket(cluster / "api.sock", administrator(cluster)), node)
    finally:
        if etcd_pid:  # etcd ends here, so that its ports are free at the next start
            os.kill(etcd_pid, signal.SIGKILL)
            os.waitpid(etcd_pid, 0)
        os._exit(0)


if __name__ == "__main__":
    folder, name, etcd = Path(sys.argv[1]), sys.argv[3], int(sys.argv[5])
    signal.signal(signal.SIGTERM, lambda *_: end(folder, name, etcd))
    asyncio.run(main(folder, Path(sys.argv[2]), name, sys.argv[4], etcd))
