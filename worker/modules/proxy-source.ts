/** Downloads modules from the proxy that the assignment names. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { TransferClient } from '#core/transfer/index.ts'
import { reachableFrom } from '#proto/index.ts'
import type { Dialling } from '#proto/index.ts'
import { fetchModule } from './fetch-module.ts'
import type { ModuleRequest } from './module-request.ts'

/** A source that sends nothing for so long is given up; the download resumes where it stood. */
const SILENCE_MS = 30_000
/** As long as the proxy pulls a module; until then it says again and again that it is pulling. */
const PULL_PATIENCE_MS = 10 * 60_000

export type ProxySourceOptions = {
  /** How to dial an address: it may take a handshake to find out where the certificate is pinned. */
  dial: (address: string) => Promise<Dialling>
  /** A proxy on loopback is one of the machine where the manager is. */
  managerAddress: string
}

type Known = { client: TransferClient; isTls: boolean }

export class ProxySource {
  readonly #options: ProxySourceOptions
  #known = new Map<string, Promise<Known>>()

  constructor(options: ProxySourceOptions) {
    this.#options = options
  }

  /** The bytes of a module from an offset on; see `ModuleSource`. */
  async *read(wanted: ModuleRequest, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const address = reachableFrom(wanted.sourceAddress, this.#options.managerAddress)
    const endMs = monotonicMs() + PULL_PATIENCE_MS
    for (;;) {
      const { client, isTls } = await this.#connect(address)
      try {
        yield* fetchModule({ client, address, isTls, wanted, offset }, signal)
        return
      } catch (error) {
        signal.throwIfAborted()
        const waitMs = error instanceof ServiceError ? (error.retryAfterSeconds ?? Infinity) * 1000 : Infinity
        if (monotonicMs() + waitMs > endMs) throw error
        await sleep(waitMs, signal)
      }
    }
  }

  /** Looks anew whom it dials and with what, from the next download on: the worker shows another certificate. */
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
