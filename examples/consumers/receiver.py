"""Prints the messages of a named consumer, and acknowledges each after it was handled.

    SKEIN_URL=http://127.0.0.1:8080 SKEIN_TOKEN=… SKEIN_DOMAIN=… SKEIN_CONSUMER=readings python3 receiver.py

Only the standard library is used. Several of these may run for one consumer: they share its messages.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

WAIT_SECONDS = 30
# Longer than the wait, so that only a lost connection ends a request early.
TIMEOUT_SECONDS = WAIT_SECONDS + 15
RETRY_SECONDS = 1

BASE = "/".join(
    [os.environ["SKEIN_URL"].rstrip("/"), os.environ["SKEIN_DOMAIN"], "consumers", urllib.parse.quote(os.environ["SKEIN_CONSUMER"])]
)
HEADERS = {"Authorization": "Bearer " + os.environ["SKEIN_TOKEN"], "Content-Type": "application/json"}


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data=data, headers=HEADERS)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return json.load(response)


def handle(message):
    """Raises when the message cannot be handled: then it is delivered again."""
    print(json.dumps(message["payload"]), flush=True)


def receive():
    done, failed = [], []
    for message in call(f"/messages?limit=100&wait={WAIT_SECONDS}s")["messages"]:
        # After a failure, later messages of the same client wait for it, so that they stay in order.
        if message["publisher"] in {one["publisher"] for one in failed}:
            failed.append(message)
            continue
        try:
            handle(message)
            done.append(message)
        except Exception as error:
            print(f"failed: {error}", file=sys.stderr)
            failed.append(message)
    if done:
        call("/ack", {"positions": [message["position"] for message in done]})
    if failed:
        call("/nack", {"positions": [message["position"] for message in failed], "delay": "5s", "reason": "failed"})


while True:
    try:
        receive()
    except urllib.error.HTTPError as error:
        if error.code not in (429, 502, 503, 504):
            sys.exit(f"{error.code}: {error.read().decode()}")
        time.sleep(float(error.headers.get("Retry-After", RETRY_SECONDS)))
    except OSError as error:
        # What was not acknowledged is delivered again.
        print(f"connection lost: {error}", file=sys.stderr)
        time.sleep(RETRY_SECONDS)
