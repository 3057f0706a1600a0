"""A device that becomes what it should be: it applies the difference that it receives, and reports what it is then.

    SKEIN_MQTT_HOST=127.0.0.1 SKEIN_DOMAIN=… SKEIN_CLIENT=… SKEIN_SECRET=… python3 device.py

It requires paho-mqtt (Debian: python3-paho-mqtt).
"""

import json
import os

import paho.mqtt.client as mqtt

DOMAIN = os.environ["SKEIN_DOMAIN"]
DESIRED, REPORTED = f"c/{DOMAIN}/state/desired", f"c/{DOMAIN}/state/reported"

state = {"firmware": "1.3", "led": {"on": False}}
newest = 0


def merge(target, patch):
    """JSON merge patch (RFC 7396)."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            inner = target.get(name)
            target[name] = merge(inner if isinstance(inner, dict) else {}, value)
        else:
            target[name] = value
    return target


def on_connect(client, *_):
    client.subscribe(DESIRED, qos=1)
    # Everything that it is, once for each connection. Later reports are what changed.
    client.publish(REPORTED, json.dumps(state), qos=1)


def on_message(client, _, message):
    global newest
    received = json.loads(message.payload)
    # Versions only grow: an older difference was replaced.
    if received["version"] <= newest:
        return
    newest = received["version"]
    merge(state, received["delta"])
    print(json.dumps(state), flush=True)
    client.publish(REPORTED, json.dumps(received["delta"]), qos=1)


versions = {"callback_api_version": mqtt.CallbackAPIVersion.VERSION2} if hasattr(mqtt, "CallbackAPIVersion") else {}
client = mqtt.Client(**versions)
client.username_pw_set(os.environ["SKEIN_CLIENT"], os.environ["SKEIN_SECRET"])
client.on_connect, client.on_message = on_connect, on_message
client.connect(os.environ["SKEIN_MQTT_HOST"], int(os.environ.get("SKEIN_MQTT_PORT", "1883")))
client.loop_forever()
