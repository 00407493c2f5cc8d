"""An S3 server on loopback (moto), and storage places of both tested kinds: a folder and S3.

moto refuses the same requests as S3 here: a missing bucket (NoSuchBucket), a missing key (NoSuchKey).  Source:
github.com/getmoto/moto, `moto/s3/exceptions.py`.
"""

from contextlib import contextmanager
from urllib.parse import urlencode

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "the-secret-of-the-test"


class Bucket:
    """A server with one bucket; `address` is the value for `context_storage.replica`."""

    def __init__(self, name="tasks"):
        self.server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        more = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=self.url, config=Config(retries={"max_attempts": 1}), **more)
        self.client.create_bucket(Bucket=name)
        self.address = f"s3://{name}/replica?" + urlencode({"endpoint_url": self.url, "key": KEY, "secret": SECRET})

    def close(self):
        self.client.close()
        self.server.stop()


@contextmanager
def bucket():
    made = Bucket()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def place(kind, folder):
    """The address of a place of this kind: below `folder`, or for "s3" on a server of its own."""
    if kind == "folder":
        yield str(folder / "replica")
    else:
        with bucket() as made:
            yield made.address
