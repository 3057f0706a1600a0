/** Downloads modules from the proxy of an assignment. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { TransferClient } from '#core/transfer/index.ts'
import { reachableFrom } from '#proto/index.ts'
import type { Dialling } from '#proto/index.ts'
import type { Bandwidth } from './bandwidth.ts'
import { fetchModule } from './fetch-module.ts'
import type { ModuleRequest } from './module-request.ts'

/** A source without data for this long is abandoned; the download resumes at the same offset. */
const SILENCE_MS = 30_000
/** The pull deadline of the proxy, which reports that it is pulling until then. */
const PULL_DEADLINE_MS = 10 * 60_000

export type ProxySourceOptions = {
  /** How to connect to an address: pinning a certificate can require a handshake. */
  dial: (address: string) => Promise<Dialling>
  /** A loopback address of the proxy refers to the machine of the manager. */
  managerAddress: () => string
  /** Limit of all downloads together; undefined: none. */
  bandwidth?: Bandwidth | undefined
}

type Known = { client: TransferClient; isTls: boolean }

export class ProxySource {
  readonly #options: ProxySourceOptions
  #known = new Map<string, Promise<Known>>()

  constructor(options: ProxySourceOptions) {
    this.#options = options
  }

  /** The bytes of a module from an offset; see `ModuleSource`. */
  async *read(wanted: ModuleRequest, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const { bandwidth } = this.#options
    if (bandwidth === undefined) return yield* this.#readPart(wanted, offset, undefined, signal)
    // In parts: a server ends a connection on which a client reads too slowly.
    for (let position = offset; position < wanted.sizeBytes;) {
      const begin = position
      const end = Math.min(begin + bandwidth.partBytes, wanted.sizeBytes)
      for await (const chunk of this.#readPart(wanted, begin, end, signal)) {
        position += chunk.length
        yield chunk
        await bandwidth.pass(chunk.length, signal)
      }
      if (position === begin) return
    }
  }

  async *#readPart(
    wanted: ModuleRequest,
    offset: number,
    end: number | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const address = reachableFrom(wanted.sourceAddress, this.#options.managerAddress())
    const endMs = monotonicMs() + PULL_DEADLINE_MS
    for (;;) {
      const { client, isTls } = await this.#connect(address)
      try {
        yield* fetchModule({ client, address, isTls, wanted, offset, end }, signal)
        return
      } catch (error) {
        signal.throwIfAborted()
        const waitMs = error instanceof ServiceError ? (error.retryAfterSeconds ?? Infinity) * 1000 : Infinity
        if (monotonicMs() + waitMs > endMs) throw error
        await sleep(waitMs, signal)
      }
    }
  }

  /** Uses a new connection for the next download, because the worker has a new certificate. */
  redial(): void {
    this.#known = new Map()
  }

  #connect(address: string): Promise<Known> {
    const known = this.#known
    const connecting = known.get(address) ?? this.#dial(address)
    known.set(address, connecting)
    connecting.catch(() => known.delete(address))
    return connecting
  }

  async #dial(address: string): Promise<Known> {
    const { tls } = await this.#options.dial(address)
    const limits = { headersMs: SILENCE_MS, stallMs: SILENCE_MS }
    const client = new TransferClient({ userAgent: 'skein-worker', limits, dial: () => tls ?? {} })
    return { client, isTls: tls !== undefined }
  }
}
