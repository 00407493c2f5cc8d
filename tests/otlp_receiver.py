"""A collector of traces on loopback, which reads what is sent with OpenTelemetry's own protobuf messages."""

import gzip
import http.server
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SECRET = "the text of a message"
"""What no export may contain."""


class Receiver:
    """A collector on loopback: takes `POST /v1/traces` of the kind that the protocol demands, refuses all else.

    It answers with `status`; while `gate` is not set, it does not answer.  Source: the OTLP specification,
    "OTLP/HTTP Request" (github.com/open-telemetry/opentelemetry-proto, docs/specification.md).
    """

    def __init__(self, status=200):
        self.status = status
        self.gate = threading.Event()
        self.gate.set()
        self.spans, self.resources, self.heads, self.wrong = [], [], [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.gate.wait(30)
                receiver.take(self, body)

            def log_message(self, *_args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, handler, body):
        status = self.status
        if handler.path != "/v1/traces":
            status = 404
        elif handler.headers["Content-Type"] != "application/x-protobuf":
            status = 415
        self.heads.append(dict(handler.headers))
        if status == 200:
            if handler.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            if SECRET.encode() in body:
                self.wrong.append("a text")
            for group in request.resource_spans:
                self.resources.append({one.key: one.value.string_value for one in group.resource.attributes})
                for scope in group.scope_spans:
                    self.spans += scope.spans
        elif status != self.status:
            self.wrong.append((handler.path, status))
        answer = ExportTraceServiceResponse().SerializeToString()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-protobuf")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def attributes(span):
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes if one.value.ListFields()
    }
