"""A device that carries out commands over MQTT: `add` and `reboot`; it rejects others.

    SKEIN_MQTT_HOST=127.0.0.1 SKEIN_MQTT_PORT=1883 SKEIN_DOMAIN=… SKEIN_CLIENT=… SKEIN_SECRET=… python3 device.py

Requires paho-mqtt (pip install paho-mqtt, or Debian's python3-paho-mqtt).
"""

import json
import os
import signal
import sys

import paho.mqtt.client as mqtt

BASE = f"c/{os.environ['SKEIN_DOMAIN']}/commands"

# A command is delivered again until its answer has arrived. A device that must not do it twice stores this on its disk.
answers = {}


def carry_out(name, payload):
    if name == "add":
        return {"status": "succeeded", "result": payload["a"] + payload["b"]}
    if name == "reboot":
        return {"status": "succeeded"}
    return {"status": "rejected", "reason": f"this device knows no {name}"}


def on_connect(client, *_):
    # What is open comes at once, and each new command later.
    client.subscribe(f"{BASE}/requests/+/+", qos=1)


def on_message(client, _, message):
    command, name = message.topic.split("/")[4:6]
    if command not in answers:
        try:
            answers[command] = carry_out(name, json.loads(message.payload) if message.payload else None)
        except Exception as error:
            answers[command] = {"status": "failed", "reason": str(error)[:500]}
    client.publish(f"{BASE}/results/{command}", json.dumps(answers[command]), qos=1)
    print(name, answers[command]["status"], flush=True)


# paho-mqtt 2 asks for the version of its callbacks.
versions = getattr(mqtt, "CallbackAPIVersion", None)
# The session is kept, so that an answer that was not acknowledged is sent again after a reconnection.
options = {"client_id": os.environ["SKEIN_CLIENT"], "clean_session": False}
device = mqtt.Client(**options) if versions is None else mqtt.Client(versions.VERSION1, **options)
device.username_pw_set(os.environ["SKEIN_CLIENT"], os.environ["SKEIN_SECRET"])
device.on_connect = on_connect
device.on_message = on_message
device.connect(os.environ["SKEIN_MQTT_HOST"], int(os.environ["SKEIN_MQTT_PORT"]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
device.loop_forever(retry_first_connection=True)
