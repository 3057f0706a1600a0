/** Waits until the worker of a folder has a session with a manager. */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { readStatus } from '../status/index.ts'
import type { WorkerStatus } from '../status/index.ts'

/** How long a new version has to join before the previous one is started again. */
export const JOIN_DEADLINE_MS = 60_000
const POLL_MS = 250

/** Throws `unavailable` with the reason if it has not joined within the deadline. `isWanted`: another worker does not count. */
export async function awaitJoin(
  folder: string,
  deadlineMs: number = JOIN_DEADLINE_MS,
  isWanted: (status: WorkerStatus) => boolean = () => true,
): Promise<WorkerStatus> {
  const untilMs = monotonicMs() + deadlineMs
  for (;;) {
    const found = await readStatus(folder).catch((error: unknown) =>
      error instanceof Error ? error.message : String(error),
    )
    if (typeof found !== 'string' && found.state !== 'disconnected' && isWanted(found)) return found
    if (monotonicMs() > untilMs) {
      const reason = typeof found === 'string' ? found : `no session with ${found.manager}`
      throw new ServiceError('unavailable', `the worker has not joined within ${deadlineMs / 1000} s: ${reason}`)
    }
    await sleep(POLL_MS)
  }
}
