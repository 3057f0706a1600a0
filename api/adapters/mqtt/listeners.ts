/** The listeners of MQTT: TCP, and TLS with client certificates when there is an authority for them. */
import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import type { TLSSocket } from 'node:tls'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { followTls, openPort, peerAddressOf, portError } from '#http/index.ts'
import type { SharedPorts, TlsFiles } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Peer } from './connection.ts'
import { ProxiedConnections } from './proxied-connections.ts'

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
  /** Addresses or subnets of load balancers whose PROXY protocol header is trusted. */
  trustProxy?: readonly string[] | undefined
  accept: (socket: Socket, peer: Peer) => void
  /** The PROXY protocol header or the TLS handshake of a peer failed. */
  onRefused: () => void
  logger: Logger
}

export class Listeners {
  readonly #options: ListenersOptions
  readonly #servers: Server[] = []
  readonly #proxied: ProxiedConnections
  /** Addresses of clients behind a load balancer, by the connection of the load balancer; see `connectionOf`. */
  readonly #addresses = new Map<string, string>()
  #port: number | undefined
  #tlsPort: number | undefined

  constructor(options: ListenersOptions) {
    this.#options = options
    const { trustProxy = [], onRefused, logger } = options
    this.#proxied = new ProxiedConnections({ trustProxy, onRefused, logger })
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
          this.#proxied.take(socket, (address) => accept(socket, { address })),
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
    this.#proxied.stop()
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
    const { onRefused, logger } = this.#options
    const secure = createTlsServer(
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
    followTls(secure, files)
    secure.on('tlsClientError', onRefused)
    // The header of the PROXY protocol comes before the handshake, so the connection is accepted without TLS first.
    const server = createServer({ noDelay: true }, (socket) =>
      this.#proxied.take(socket, (address) => {
        const connection = connectionOf(socket)
        if (address !== peerAddressOf(socket)) {
          this.#addresses.set(connection, address)
          socket.once('close', () => this.#addresses.delete(connection))
        }
        secure.emit('connection', socket)
      }),
    )
    // It has listeners of its own, such as for renewed files, which end with it.
    server.once('close', () => secure.close())
    return server
  }

  async #acceptSecure(socket: TLSSocket, clientOf: ClientOf | undefined): Promise<void> {
    const { accept } = this.#options
    const address = this.#addresses.get(connectionOf(socket)) ?? peerAddressOf(socket)
    const certificate = socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
    if (certificate === undefined || clientOf === undefined) return accept(socket, { address })
    const recertify = () => clientOf(certificate)
    accept(socket, { address, certificate: await recertify(), recertify })
  }
}

/** Identifies an open connection to these listeners: a TLS socket and the socket below it have the same ends. */
function connectionOf(socket: Socket): string {
  const { remotePort, localAddress, localPort } = socket
  return `${peerAddressOf(socket)} ${remotePort} ${localAddress} ${localPort}`
}
