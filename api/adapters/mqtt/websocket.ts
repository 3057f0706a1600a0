/** MQTT over WebSocket at /mqtt (MQTT 5.0 section 6): a byte stream in binary frames of any size. */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer, createWebSocketStream } from 'ws'
import type { CallerAddress } from '#http/index.ts'
import { PING_MS, pingPeriodically } from '#core/streams/index.ts'

/** The paths of newer and older clients, and of reverse proxies. */
const PATH = /^\/(?:api\/)?mqtt\/?(?:\?|$)/
/** Subprotocols by preference [MQTT-6.0.0-4]; the second is that of 3.1. */
const SUBPROTOCOLS = ['mqtt', 'mqttv3.1']

export type MqttUpgrades = {
  /** True when the request is for MQTT; it is handled then. */
  take(request: IncomingMessage, socket: Duplex, head: Buffer): boolean
}

export function createMqttUpgrades(
  accept: (stream: Duplex, address: string) => void,
  { addressOf, maxFrameBytes }: { addressOf: CallerAddress; maxFrameBytes: number | undefined },
  pingMs = PING_MS,
): MqttUpgrades {
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: maxFrameBytes,
    // A client that offers no subprotocol is accepted too, as by other brokers.
    handleProtocols: (offered) => SUBPROTOCOLS.find((name) => offered.has(name)) ?? false,
  })
  return {
    take(request, socket, head) {
      if (!PATH.test(request.url ?? '')) return false
      const ignore = () => socket.destroy()
      socket.on('error', ignore)
      server.handleUpgrade(request, socket, head, (upgraded) => {
        socket.removeListener('error', ignore)
        const heard = pingPeriodically(upgraded, pingMs)
        // Text frames are not allowed [MQTT-6.0.0-1].
        upgraded.on('message', (_data, isBinary) => {
          heard()
          if (!isBinary) upgraded.close(1003, 'MQTT is carried by binary frames')
        })
        const stream = createWebSocketStream(upgraded)
        accept(stream, addressOf(request))
      })
      return true
    },
  }
}
