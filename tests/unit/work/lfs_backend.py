"""A git server with Git LFS that refuses the same requests as real servers.

git-lfs/git-lfs docs/api/batch.md: media type on Accept and Content-Type, 401 without a login, 404 without LFS, an error
for each unknown object.  docs/api/basic-transfers.md: PUT of the raw content, then `verify`.  A wrong size is 422
(go-gitea/gitea services/lfs/server.go; GitLab's lfs_storage_controller also checks size and SHA-256), and a push of
pointers without their content is declined (GitHub's GH008).
"""

import hashlib
import json
from base64 import b64decode

from work_repos import Backend

JSON = "application/vnd.git-lfs+json"


class LfsBackend(Backend):
    """`server.objects` oid → bytes, `server.verified`, `server.refuse` {operation: status}, `server.log`."""

    def do_GET(self):
        if self.is_page():
            return
        if self.path.startswith("/storage/"):
            self._storage()
        elif "/info/lfs/" in self.path:
            self._lfs()
        else:
            super().do_GET()

    def do_POST(self):
        self.do_GET()

    def do_PUT(self):
        self.do_GET()

    def _lfs(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        login = self.headers.get("Authorization", "")
        password = b64decode(login.split()[1]).decode().partition(":")[2] if login.startswith("Basic ") else None
        if not self.path.startswith("/repo.git/info/lfs/"):
            return self._answer(404, {"message": "Not found"})
        if password not in self.server.accepted:
            return self._answer(401, {"message": "Credentials needed"})
        if self.headers.get("Content-Type", "").partition(";")[0] != JSON or JSON not in self.headers.get("Accept", ""):
            return self._answer(406, {"message": "wrong media type"})
        asked = json.loads(body)
        if self.path.endswith("/verify"):
            there = self.server.objects.get(asked["oid"])
            if there is None or len(there) != asked["size"]:
                return self._answer(422, {"message": "Object not found or of another size"})
            self.server.verified.append(asked["oid"])
            return self._answer(200, {})
        operation = asked["operation"]
        self.server.log.append(operation)
        if status := self.server.refuse.get(operation):
            return self._answer(status, {"message": "Git LFS is not for you"})
        if asked.get("hash_algo", "sha256") != "sha256" or "basic" not in asked.get("transfers", ["basic"]):
            return self._answer(409, {"message": "hash or transfer is not supported"})
        entries = [self._entry(operation, one["oid"], one["size"]) for one in asked["objects"]]
        return self._answer(200, {"transfer": "basic", "objects": entries, "hash_algo": "sha256"})

    def _entry(self, operation, oid, size):
        entry = {"oid": oid, "size": size}
        there = self.server.objects.get(oid)
        storage = f"http://localhost:{self.server.server_port}/storage/{oid}"  # another host than 127.0.0.1
        action = {"href": storage, "header": {"X-Signature": f"sig-{oid[:8]}"}, "expires_in": 60}
        if operation == "download":
            if there is None:
                return entry | {"error": {"code": 404, "message": "Object does not exist"}}
            return entry | {"actions": {"download": action}}
        if there is not None and len(there) == size:
            return entry
        if oid in self.server.over_quota:
            return entry | {"error": {"code": 507, "message": "over its data quota"}}
        verify = f"http://127.0.0.1:{self.server.server_port}/repo.git/info/lfs/verify"
        return entry | {"actions": {"upload": action, "verify": {"href": verify}}}

    def _storage(self):
        oid = self.path.rpartition("/")[2]
        self.server.logins_at_storage.append(self.headers.get("Authorization"))
        if self.headers.get("X-Signature") != f"sig-{oid[:8]}":
            return self._answer(403, {"message": "SignatureDoesNotMatch"})
        if self.command == "GET":
            content = self.server.objects[oid]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None
        if "Content-Length" not in self.headers:
            return self._answer(411, {"message": "MissingContentLength"})
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if hashlib.sha256(content).hexdigest() != oid:
            return self._answer(422, {"message": "SHA-256 mismatch"})
        self.server.objects[oid] = content
        return self._answer(200, {})

    def _answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        if status == 401:
            self.send_header("LFS-Authenticate", 'Basic realm="Git LFS"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
