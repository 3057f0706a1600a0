/** The WebSocket adapter: a socket publishes what it sends and is sent what others publish (contract section 7.2). */
import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Messages } from '#api/messages/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { MessageAccessDeps } from '../http/access.ts'
import { createUpgrades } from './upgrade.ts'

export type WebSocketAdapterDeps = MessageAccessDeps & {
  messages: Messages
  streams: Streams
  /** Aborted when the process stops: the sockets are closed then. */
  signal: AbortSignal
  /** Takes the upgrades of another adapter; true: it did. */
  takenByOthers?: ((request: IncomingMessage, socket: Duplex, head: Buffer) => boolean) | undefined
}

/** Takes the upgrades of every port. */
export function webSocketRoutes(deps: WebSocketAdapterDeps): RoutePlugin {
  return (app) => {
    const upgrades = createUpgrades(deps, app.initialConfig.bodyLimit, app.log)
    const server: Server = app.server
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (deps.takenByOthers?.(request, socket, head) !== true) upgrades.take(request, socket, head)
    })
    deps.signal.addEventListener('abort', upgrades.stop, { once: true })
  }
}
