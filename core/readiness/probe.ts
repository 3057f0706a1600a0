/** Asks a dependency in the background, each time with a deadline, and remembers the last answer. */
import { sleep, withDeadline } from '../time.ts'

export type Probe = {
  /** The reason why the dependency cannot be used, as of the last answer. Undefined: it can be used. */
  read(): string | undefined
  stop(): Promise<void>
}

export type ProbeOptions = {
  /** Resolves to the reason why the dependency cannot be used, or to undefined. What it throws is `failure`. */
  ask: (signal: AbortSignal) => Promise<string | undefined>
  /** The reason when nothing is answered in time, or the question fails. */
  failure: string
  /** The pause between an answer and the next question. */
  intervalMs: number
  deadlineMs: number
}

/** Asks at once, and again until it is stopped. */
export function startProbe({ ask, failure, intervalMs, deadlineMs }: ProbeOptions): Probe {
  const stopping = new AbortController()
  let reason: string | undefined = 'not checked yet'
  const loop = (async () => {
    while (!stopping.signal.aborted) {
      const question = AbortSignal.any([stopping.signal, AbortSignal.timeout(deadlineMs)])
      reason = await withDeadline(ask(question), deadlineMs, 'a readiness check').catch(() => failure)
      await sleep(intervalMs, stopping.signal).catch(() => undefined)
    }
  })()
  return {
    read: () => reason,
    async stop() {
      stopping.abort()
      await loop
    },
  }
}
