/**
 * Assembles the modules that are sent to a runner: orders one after the other, each followed by the bytes of its files.
 */
import type { ModuleOrder } from './messages.ts'

export type ModuleFile = { name: string; bytes: Uint8Array }
export type ReceivedModule = { order: ModuleOrder; files: ModuleFile[] }

export class ModuleReceiver {
  readonly #onReceived: (received: ReceivedModule) => void
  #current: (ReceivedModule & { file: number; filled: number }) | undefined

  constructor(onReceived: (received: ReceivedModule) => void) {
    this.#onReceived = onReceived
  }

  /** The next bytes belong to this module. */
  order(order: ModuleOrder): void {
    const files = order.files.map(({ name, bytes }) => ({ name, bytes: new Uint8Array(bytes) }))
    this.#current = { order, files, file: 0, filled: 0 }
    this.#finish()
  }

  take(part: Uint8Array): void {
    let rest = part
    while (rest.length > 0) {
      const current = this.#current
      const target = current?.files[current.file]
      if (current === undefined || target === undefined) throw new Error('received bytes that belong to no module')
      const taken = rest.subarray(0, target.bytes.length - current.filled)
      target.bytes.set(taken, current.filled)
      current.filled += taken.length
      rest = rest.subarray(taken.length)
      this.#finish()
    }
  }

  /** Continues with the next incomplete file; delivers the module if there is none. */
  #finish(): void {
    const current = this.#current
    if (current === undefined) return
    for (;;) {
      const file = current.files[current.file]
      if (file === undefined) break
      if (current.filled < file.bytes.length) return
      current.file++
      current.filled = 0
    }
    this.#current = undefined
    this.#onReceived({ order: current.order, files: current.files })
  }
}
