/** The runs of a worker that limits their memory, with the sum of what they may take. */
import { memoryClassBytes } from '../model/needs.ts'
import type { AssignedRun } from '../model/run.ts'

export class BudgetedRuns extends Map<string, AssignedRun> {
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  override set(id: string, run: AssignedRun): this {
    this.#bytes += memoryOf(run) - memoryOf(this.get(id))
    return super.set(id, run)
  }

  override delete(id: string): boolean {
    this.#bytes -= memoryOf(this.get(id))
    return super.delete(id)
  }

  override clear(): void {
    this.#bytes = 0
    super.clear()
  }
}

/** As in the needs of the run. */
export const memoryOf = (run: AssignedRun | undefined): number =>
  run === undefined ? 0 : memoryClassBytes(run.spec.memory_limit_bytes)
