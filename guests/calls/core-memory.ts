/** Reads and writes the memory of a core module for host functions, and keeps the message of their last error. */
import { MESSAGING_CODES, MESSAGING_CODE_OTHER } from '../wasm/index.ts'

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true })

export class CoreMemory {
  readonly #memory: () => WebAssembly.Memory
  lastError = ''

  /** `memory` is the guest's at the time of a call. Addresses outside of it trap, as the guest's own accesses do. */
  constructor(memory: () => WebAssembly.Memory) {
    this.#memory = memory
  }

  bytes(pointer: number, length: number): Uint8Array {
    return new Uint8Array(this.#memory().buffer, pointer >>> 0, length >>> 0)
  }

  /** Throws a TypeError if it is not UTF-8. */
  text(pointer: number, length: number): string {
    return decoder.decode(this.bytes(pointer, length))
  }

  /** Writes as much as the buffer takes, and returns the length of all. */
  write(pointer: number, capacity: number, data: Uint8Array): number {
    const target = this.bytes(pointer, capacity)
    target.set(data.subarray(0, target.length))
    return data.length
  }

  writeText(pointer: number, capacity: number, text: string): number {
    return this.write(pointer, capacity, encoder.encode(text))
  }

  /** Keeps the message, and returns the code of the kind. */
  refuse({ kind, message }: { kind: string; message: string }): number {
    this.lastError = message
    return MESSAGING_CODES[kind] ?? MESSAGING_CODE_OTHER
  }
}
