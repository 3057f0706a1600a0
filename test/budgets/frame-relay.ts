/** A wire between a worker and its manager that counts the frames of HTTP/2. Both speak it without TLS here. */
import { createConnection, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import { hostOf, portOf } from '#proto/index.ts'
import { FrameCounter } from './frames.ts'
import type { Wire } from './frames.ts'

/** RFC 9113 section 4.1: a length, a type, flags and a stream. */
const FRAME = { headerBytes: 9, lengthAt: 0, lengthBytes: 3 }
/** RFC 9113 section 3.4: what a client sends before its first frame. */
const PREFACE_BYTES = 24

export class FrameRelay implements AsyncDisposable {
  readonly #server: Server
  readonly #target: string
  readonly #sockets = new Set<Socket>()
  /** Both directions. */
  readonly wire: Wire = { frames: 0, bytes: 0 }

  private constructor(target: string) {
    this.#target = target
    this.#server = createServer({ noDelay: true }, (near) => this.#join(near))
  }

  static async start(target: string): Promise<FrameRelay> {
    const relay = new FrameRelay(target)
    await new Promise<void>((resolve) => relay.#server.listen(0, '127.0.0.1', resolve))
    return relay
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #join(near: Socket): void {
    const far = createConnection({ host: hostOf(this.#target), port: Number(portOf(this.#target)), noDelay: true })
    this.#pass(near, far, PREFACE_BYTES)
    this.#pass(far, near, 0)
  }

  /** With callbacks, because promises are counted in this process. */
  #pass(from: Socket, to: Socket, prefaceBytes: number): void {
    this.#sockets.add(from)
    const counter = new FrameCounter(this.wire, FRAME, prefaceBytes)
    from.on('data', (chunk: Buffer) => {
      counter.push(chunk)
      to.write(chunk)
    })
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroy()
    })
  }
}
