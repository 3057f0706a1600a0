/** Drains the worker of a folder: it takes no new runs, and goes on with those that it has. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { readStatus } from '../status/index.ts'

/** The worker drains when it receives this signal (worker.ts). */
export const DRAIN_SIGNAL = 'SIGUSR2'
const POLL_MS = 250
const ANSWER_DEADLINE_MS = 10_000

/**
 * Resolves when no run and no unsent result is left. Has no deadline of its own: a run may take as long as its task allows.
 * Throws `unavailable` if no worker runs in that folder, or if it does not begin to drain.
 */
export async function drainWorker(folder: string, print: (line: string) => void): Promise<void> {
  const { pid, name } = await readStatus(folder)
  process.kill(pid, DRAIN_SIGNAL)
  const beganMs = monotonicMs()
  let shown = ''
  for (;;) {
    const { state, runs, spooled_results: unsent } = await readStatus(folder)
    if (state === 'draining') {
      if (runs.length === 0 && unsent === 0)
        return print(`${name} is drained: it has no runs and takes none until it is started again`)
      const line = `${name} drains: ${runs.length} runs, ${unsent} unsent results`
      if (line !== shown) print(line)
      shown = line
    } else if (monotonicMs() - beganMs > ANSWER_DEADLINE_MS)
      throw new ServiceError('unavailable', `the worker ${name} (process ${pid}) does not drain`)
    await sleep(POLL_MS)
  }
}
