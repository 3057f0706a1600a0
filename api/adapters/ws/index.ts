/** The WebSocket adapter: publishes received frames and delivers messages of the channel (contract section 7.2). */
import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import type { RoutePlugin } from '#http/index.ts'
import { Upgrades } from './upgrade.ts'
import type { UpgradesDeps } from './upgrade.ts'

export type WebSocketAdapterDeps = Omit<UpgradesDeps, 'maxFrameBytes' | 'logger' | 'addressOf'> & {
  /** Aborted when the process stops: closes the sockets. */
  signal: AbortSignal
  /** Handles upgrades of another adapter; true when it did. */
  takenByOthers?: ((request: IncomingMessage, socket: Duplex, head: Buffer) => boolean) | undefined
}

/** Handles upgrades on every port. */
export function webSocketRoutes(deps: WebSocketAdapterDeps): RoutePlugin {
  return (app) => {
    const upgrades = new Upgrades({
      ...deps,
      addressOf: app.callerAddress,
      maxFrameBytes: app.initialConfig.bodyLimit,
      logger: app.log,
    })
    const server: Server = app.server
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (deps.takenByOthers?.(request, socket, head) !== true) upgrades.take(request, socket, head)
    })
    deps.signal.addEventListener('abort', () => upgrades.stop(), { once: true })
  }
}
