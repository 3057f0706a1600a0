/**
 * How long the machine itself stands still while a fault is measured. COMMIT waits for two disks, which are one here, and
 * other work on the machine makes each of them wait.
 */
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'

const INTERVAL_MS = 100

type Sample = { atMs: number; fsyncMs: number; lateMs: number }

export class MachineProbe implements AsyncDisposable {
  readonly #file: FileHandle
  readonly #samples: Sample[] = []
  readonly #loop: Promise<void>
  #isOver = false

  private constructor(file: FileHandle) {
    this.#file = file
    this.#loop = this.#sample()
  }

  static async start(folder: string): Promise<MachineProbe> {
    return new MachineProbe(await open(join(folder, 'fsync'), 'w'))
  }

  /** The longest time that a file took to be stored, and that a timer of this process was late, in milliseconds. */
  worstSince(sinceMs: number): { fsyncMs: number; lateMs: number } {
    const samples = this.#samples.filter(({ atMs }) => atMs > sinceMs)
    const worst = (key: 'fsyncMs' | 'lateMs') => Math.max(0, ...samples.map((sample) => sample[key]))
    return { fsyncMs: worst('fsyncMs'), lateMs: worst('lateMs') }
  }

  async #sample(): Promise<void> {
    while (!this.#isOver) {
      const beganMs = performance.now()
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS))
      const lateMs = performance.now() - beganMs - INTERVAL_MS
      const syncedMs = performance.now()
      await this.#file.write('x', 0)
      await this.#file.datasync()
      const atMs = performance.now()
      this.#samples.push({ atMs, fsyncMs: atMs - syncedMs, lateMs })
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true
    await this.#loop
    await this.#file.close()
  }
}
