/** A wire to PostgreSQL that a test can cut (connections break, new ones are refused) or freeze (nothing passes). */
import { createConnection, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { DatabaseAddress } from '#core/database/index.ts'

type ServerAddress = Exclude<DatabaseAddress, { url: string }>

export class Relay implements AsyncDisposable {
  readonly #server: Server
  readonly #target: ServerAddress
  readonly #sockets = new Set<Socket>()
  #state: 'whole' | 'cut' | 'frozen' = 'whole'

  private constructor(target: ServerAddress) {
    this.#target = target
    this.#server = createServer((near) => this.#join(near))
  }

  static async start(target: ServerAddress): Promise<Relay> {
    const relay = new Relay(target)
    await new Promise<void>((resolve) => relay.#server.listen(0, '127.0.0.1', resolve))
    return relay
  }

  get address(): ServerAddress {
    return { ...this.#target, host: '127.0.0.1', port: (this.#server.address() as AddressInfo).port }
  }

  cut(): void {
    this.#state = 'cut'
    for (const socket of this.#sockets) socket.destroy()
  }

  freeze(): void {
    this.#state = 'frozen'
    for (const socket of this.#sockets) socket.unpipe().pause()
  }

  /** New connections work; those that were cut or frozen stay so. */
  repair(): void {
    this.#state = 'whole'
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #join(near: Socket): void {
    this.#keep(near)
    if (this.#state === 'cut') near.destroy()
    if (this.#state !== 'whole') return
    const { host, port } = this.#target
    const far = createConnection(`${host}/.s.PGSQL.${port}`)
    this.#keep(far)
    near.pipe(far).pipe(near)
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket))
  }
}
