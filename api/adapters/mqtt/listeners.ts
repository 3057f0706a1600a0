/** The listeners of MQTT: TCP, and TLS with client certificates when there is an authority for them. */
import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import type { TLSSocket } from 'node:tls'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { followTls, openPort, portError } from '#core/http/index.ts'
import type { SharedPorts, TlsFiles } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Peer } from './connection.ts'

/** The client of a certificate; undefined when there is none. */
export type ClientOf = (certificate: Buffer) => Promise<DeviceCredentials | undefined>

export type ListenersOptions = {
  host: string
  /** 0: any free port; undefined: no listener. */
  port: number | undefined
  /** Port and files of TLS; undefined: none. */
  tls?: { port: number; files: TlsFiles; clientOf?: ClientOf | undefined } | undefined
  /** Set where several processes open the same ports. */
  sharedPorts?: SharedPorts | undefined
  accept: (socket: Socket, peer: Peer) => void
  /** The TLS handshake of a peer failed. */
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

  /** Throws when a port is in use; listeners that were opened are closed then. */
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

  /** Accepts no new connections, and resolves when all have ended. */
  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))))
  }

  async #listen(server: Server, port: number, setting: string): Promise<number> {
    const { host, sharedPorts, logger } = this.#options
    await openPort(server, { port, host }, sharedPorts).catch((error: unknown) => {
      throw portError(error, { port, setting }, host)
    })
    server.on('error', (error) => logger.warn({ err: error }, 'failed to accept a connection'))
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
