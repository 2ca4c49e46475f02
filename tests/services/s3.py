"""A store that speaks S3: moto behind a lock, which makes its conditional writes atomic, and faults on request.

s3.py PORT FOLDER        the folder only names the process

GET  /-/requests         how many requests there were of each kind since the last question, as JSON
POST /-/faults           replaces the rules; the body is a JSON list of
                         {"fault": F, "method": "PUT", "contains": "acks/", "times": 1, "ratio": 1.0, "seconds": 1}
                         where all but the fault may be left out. The first rule that fits a request decides.

Faults: "500", "503", "409", "403" are answered and nothing is done; "applied-500" and "applied-reset" are done, and
answered so; "reset" closes the connection; "slow" is done after some seconds; "late" is done after some seconds, and
the connection is closed at once; "error-body" is answered with 200 and an error in the body, and nothing is done; "hang" never answers; "unconditional" is done as if it had no condition.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from urllib.parse import parse_qs

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

ANSWERS = {
    "500": ("500 Internal Server Error", "InternalError"),
    "503": ("503 Slow Down", "SlowDown"),
    "409": ("409 Conflict", "ConditionalRequestConflict"),
    "403": ("403 Forbidden", "AccessDenied"),
}


class Front:
    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.rules = []
        self.counts = Counter()
        self.random = random.Random(1)

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if environ["PATH_INFO"].startswith("/-/"):
            return self.control(environ["PATH_INFO"], body, start_response)
        with self.lock:
            self.counts[kind_of(environ)] += 1
            rule = self.rule_for(environ)
        fault = rule.get("fault") if rule else None
        seconds = rule.get("seconds", 1) if rule else 0
        if fault in ANSWERS:
            return refuse(fault, start_response)
        if fault == "error-body":
            return refuse("500", start_response, "200 OK")
        if fault == "reset":
            return reset(environ)
        if fault == "hang":
            time.sleep(600)
            return reset(environ)
        if fault == "late":
            threading.Timer(seconds, self.apply, (environ, body)).start()
            return reset(environ)
        if fault == "slow":
            time.sleep(seconds)
        if fault == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        status, headers, answer = self.apply(environ, body)
        if fault == "applied-500":
            return refuse("500", start_response)
        if fault == "applied-reset":
            return reset(environ)
        start_response(status, headers)
        return [answer]

    def apply(self, environ, body):
        """Lets moto do it, alone: it looks at a condition long before it writes."""
        told = []
        with self.lock:
            again = dict(environ, **{"wsgi.input": Input(body)})
            answer = self.moto(again, lambda status, headers, info=None: told.extend((status, headers)))
            answer = b"".join(answer)
        return told[0], told[1], answer

    def rule_for(self, environ):
        for rule in self.rules:
            if rule.get("method", environ["REQUEST_METHOD"]) != environ["REQUEST_METHOD"]:
                continue
            if rule.get("contains", "") not in environ["PATH_INFO"]:
                continue
            if rule.get("times", 1) <= 0 or self.random.random() >= rule.get("ratio", 1.0):
                continue
            if "times" in rule:
                rule["times"] -= 1
            return rule
        return None

    def control(self, path, body, start_response):
        with self.lock:
            answer = b""
            if path == "/-/faults":
                self.rules = json.loads(body)
            else:
                answer = json.dumps(self.counts).encode()
                self.counts = Counter()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]


class Input:
    """A body that was read already."""

    def __init__(self, body):
        self.body = body

    def read(self, size=-1):
        size = len(self.body) if size is None or size < 0 else size
        piece, self.body = self.body[:size], self.body[size:]
        return piece

    readline = read


def kind_of(environ):
    method = environ["REQUEST_METHOD"]
    if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
        return "COPY"
    if method == "GET" and "list-type" in parse_qs(environ["QUERY_STRING"]):
        return "LIST"
    return method


def refuse(fault, start_response, instead=None):
    status, code = ANSWERS[fault]
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    start_response(instead or status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def reset(environ):
    connection = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Closing alone would leave it open: the server's own reader and writer hold it too.
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_):
        pass


def main():
    front = Front()
    Client(front.moto).put("/tidemill", headers={"Host": "127.0.0.1"})
    make_server("127.0.0.1", int(sys.argv[1]), front, threaded=True, request_handler=Handler).serve_forever()


main()
