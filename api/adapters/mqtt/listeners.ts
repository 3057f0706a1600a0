/** The ports of MQTT: TCP, and TLS with certificates of clients where there is an authority for them. */
import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import type { TLSSocket } from 'node:tls'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { followTls, portError } from '#core/http/index.ts'
import type { TlsFiles } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Peer } from './connection.ts'

/** Who a certificate stands for; undefined: nobody. */
export type ClientOf = (certificate: Buffer) => Promise<DeviceCredentials | undefined>

export type ListenersOptions = {
  host: string
  /** 0: any free one; undefined: none. */
  port: number | undefined
  /** Port and files of TLS; undefined: none. */
  tls?: { port: number; files: TlsFiles; clientOf?: ClientOf | undefined } | undefined
  accept: (socket: Socket, peer: Peer) => void
  /** A peer could not agree on TLS. */
  onTlsRefused: () => void
  logger: Logger
}

export class Listeners {
  readonly #options: ListenersOptions
  readonly #servers: Server[] = []
  #port: number | undefined
  #tlsPort: number | undefined

  constructor(options: ListenersOptions) {
    this.#options = options
  }

  get port(): number | undefined {
    return this.#port
  }

  get tlsPort(): number | undefined {
    return this.#tlsPort
  }

  /** Throws where a port is taken; those that were opened are closed then. */
  async open(): Promise<void> {
    const { port, tls, accept } = this.#options
    try {
      if (port !== undefined) {
        const plain = createServer({ noDelay: true }, (socket) =>
          accept(socket, { address: socket.remoteAddress ?? '' }),
        )
        this.#port = await this.#listen(plain, port, 'SKEIN_MQTT_PORT')
      }
      if (tls !== undefined)
        this.#tlsPort = await this.#listen(this.#secureServer(tls.files, tls.clientOf), tls.port, 'SKEIN_MQTTS_PORT')
    } catch (error) {
      await this.close()
      throw error
    }
  }

  /** Takes no new connection and resolves when those that are open have ended. */
  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))))
  }

  async #listen(server: Server, port: number, setting: string): Promise<number> {
    const { host, logger } = this.#options
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => reject(portError(error, { port, setting }, host)))
      server.listen({ port, host }, () => {
        server.removeAllListeners('error')
        server.on('error', (error) => logger.warn({ err: error }, 'failed to accept a connection'))
        resolve()
      })
    })
    this.#servers.push(server)
    return (server.address() as AddressInfo).port
  }

  #secureServer(files: TlsFiles, clientOf: ClientOf | undefined): Server {
    const { onTlsRefused, logger } = this.#options
    const server = createTlsServer(
      {
        ...files,
        noDelay: true,
        requestCert: clientOf !== undefined && files.ca !== undefined,
        rejectUnauthorized: false,
      },
      (socket) => {
        socket.on('error', () => socket.destroy())
        this.#acceptSecure(socket, clientOf).catch((error: unknown) => {
          logger.warn({ err: error }, 'failed to look up a client certificate')
          socket.destroy()
        })
      },
    )
    followTls(server, files)
    server.on('tlsClientError', onTlsRefused)
    return server
  }

  async #acceptSecure(socket: TLSSocket, clientOf: ClientOf | undefined): Promise<void> {
    const { accept } = this.#options
    const address = socket.remoteAddress ?? ''
    const certificate = socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
    if (certificate === undefined || clientOf === undefined) return accept(socket, { address })
    const recertify = () => clientOf(certificate)
    accept(socket, { address, certificate: await recertify(), recertify })
  }
}
