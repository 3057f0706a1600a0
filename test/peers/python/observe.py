"""Observes a CoAP resource with aiocoap, and prints a line of JSON for each event."""
import asyncio
import json
import sys

import aiocoap


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


async def main(address):
    context = await aiocoap.Context.create_client_context()
    request = context.request(aiocoap.Message(code=aiocoap.GET, uri=address, observe=0))
    response = await request.response
    tell("first", code=response.code.dotted, text=response.payload.decode())
    request.observation.register_callback(
        lambda message: tell("message", code=message.code.dotted, text=message.payload.decode())
    )
    request.observation.register_errback(lambda error: tell("error", name=type(error).__name__))
    # Until the test says so.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if not request.observation.cancelled:
        request.observation.cancel()
    tell("cancelled")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await context.shutdown()


asyncio.run(main(sys.argv[1]))
