"""Manages etcd's members as k3s' leader does: lets new members vote, and lets members leave.

It promotes a member that has caught up, writes the condition EtcdIsVoter to the Nodes, and removes
the member of a Node that is deleted or has the annotation `remove`. Every Node, even an agent's,
gets its finalizer, so a Node can be deleted only while there is a leader. Like k3s it never gives
up: what etcd refuses is tried again. It uses only the standard library.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import member  # pyright: ignore # beside this file on the test host
from cluster import APPLY, Socket, administrator, ask, renew  # pyright: ignore # this one too

LABELS = ("etcd", "control-plane", "master")
ETCD_LABEL = "node-role.kubernetes.io/etcd"
FINALIZER = "wrangler.cattle.io/managed-etcd-controller"
OF_ETCD = "etcd.k3s.cattle.io"
REMOVE, REMOVED = f"{OF_ETCD}/remove", f"{OF_ETCD}/removed-node-name"
NODE_NAME, NODE_ADDRESS = f"{OF_ETCD}/node-name", f"{OF_ETCD}/node-address"
MERGE = "application/merge-patch+json"


def api(folder: Path, method: str, path: str, body: Any = None, kind: str = "") -> Any:
    """Return the answer of the API server to the administrator's request."""
    return ask(Socket(folder / "api.sock", administrator(folder)), method, path, body, kind)


def look_after(folder: Path, name: str, address: str) -> None:
    """Check all members once. A member that is not the leader only marks its own Node.

    Raises:
        OSError: etcd or the API server does not answer, or etcd has no majority.
    """
    status = member.etcd("127.0.0.1", "maintenance/status", {})
    if not member.votes():
        raise OSError("etcd has no majority of its members")
    mark(folder, name, address)
    if status["leader"] != status["header"]["member_id"]:
        return
    known = member.etcd("127.0.0.1", "cluster/member/list", {"linearizable": True})["members"]
    for each in known:
        if each.get("isLearner"):
            with suppress(OSError):  # the member has not caught up yet
                member.etcd("127.0.0.1", "cluster/member/promote", {"ID": each["ID"]})
    for node in api(folder, "GET", "/api/v1/nodes")["items"]:
        with suppress(OSError):  # a node in trouble must not hold up the others
            look_after_node(folder, node, known)


def mark(folder: Path, name: str, address: str) -> None:
    """Write what a server writes to its own Node, and renew the Node's Lease."""
    own = {NODE_NAME: member.NAME.read_text(), NODE_ADDRESS: address}
    labels = {f"node-role.kubernetes.io/{role}": "true" for role in LABELS}
    now = api(folder, "GET", f"/api/v1/nodes/{name}")["metadata"]
    if now.get("annotations", {}).get(NODE_NAME) != own[NODE_NAME]:
        metadata = {"labels": labels, "annotations": own}
        api(folder, "PATCH", f"/api/v1/nodes/{name}", {"metadata": metadata}, MERGE)
    renew(Socket(folder / "api.sock", administrator(folder)), name)


def look_after_node(folder: Path, node: dict[str, Any], known: list[dict[str, Any]]) -> None:
    """Do for one Node what k3s' leader does: finalizer, condition, and removal of its member."""
    metadata = node["metadata"]
    notes = metadata.get("annotations", {})
    path = f"/api/v1/nodes/{metadata['name']}"
    found = [each for each in known if each.get("name") == notes.get(NODE_NAME)]
    is_server = metadata.get("labels", {}).get(ETCD_LABEL) == "true"
    finalizers = metadata.get("finalizers", [])
    if metadata.get("deletionTimestamp"):
        if is_server and REMOVED not in notes:
            remove(found)
        rest = [each for each in finalizers if each != FINALIZER]
        api(folder, "PATCH", path, {"metadata": {"finalizers": rest}}, MERGE)
        return
    if FINALIZER not in finalizers:
        more = {"finalizers": [*finalizers, FINALIZER]}
        api(folder, "PATCH", path, {"metadata": more}, MERGE)
    if not is_server:
        return
    if notes.get(REMOVE) == "true" and REMOVED not in notes:
        remove(found)
        gone = {REMOVED: notes[NODE_NAME], NODE_NAME: None, NODE_ADDRESS: None}
        api(folder, "PATCH", path, {"metadata": {"annotations": gone}}, MERGE)
        return
    if REMOVED in notes and notes.get(NODE_NAME, notes[REMOVED]) != notes[REMOVED]:
        back = {REMOVED: None, REMOVE: "false"}  # the machine has joined as a new member
        api(folder, "PATCH", path, {"metadata": {"annotations": back}}, MERGE)
    tell(folder, node, found)


def remove(found: list[dict[str, Any]]) -> None:
    """Remove these members from etcd."""
    for each in found:
        member.etcd("127.0.0.1", "cluster/member/remove", {"ID": each["ID"]}, 20)


def tell(folder: Path, node: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Write the condition EtcdIsVoter to the Node, if it has changed."""
    status, reason = "False", "NotAMember"
    if found:
        status, reason = (
            ("False", "MemberIsLearner") if found[0].get("isLearner") else ("True", "Is")
        )
        host = found[0]["peerURLs"][0].removeprefix("http://").partition(":")[0]
        try:
            member.etcd(host, "maintenance/status", {}, 1)
        except OSError:
            status, reason = "False", "Unhealthy"
    before = [c for c in node["status"]["conditions"] if c["type"] == "EtcdIsVoter"]
    if before and (before[0]["status"], before[0]["reason"]) == (status, reason):
        return
    condition = {"type": "EtcdIsVoter", "status": status, "reason": reason, "message": reason}
    name = node["metadata"]["name"]
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    path = f"/api/v1/nodes/{name}/status?fieldManager=k3s-etcd&force=true"
    api(folder, "PATCH", path, {**body, "status": {"conditions": [condition]}}, APPLY)
