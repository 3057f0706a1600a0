/** Whether a failed attempt is followed by another one, and when (task-manager.md section 3, rule 8). Pure. */
import { TASK_STATE } from '#proto/index.ts'
import { MAX_BACKOFF_MS } from './limits.ts'
import type { FailureReason, RunEnding, RunSpec } from './run.ts'

/** Attempts for failures that the task did not cause. */
export const ATTEMPTS_FOR_LOSS = 3
/** Random share of a backoff, so that runs that failed together do not retry together. */
const JITTER = 0.2

/** Failures of the worker or of the way to the module: another attempt can succeed. */
const NOT_THE_GUEST: ReadonlySet<FailureReason> = new Set(['worker_lost', 'fetch_failed'])
/** Another attempt would fail in the same way. */
const FINAL: ReadonlySet<FailureReason> = new Set(['module_invalid', 'no_such_function'])

/** After a daemon has run this long, its next backoff is the first one again. */
const SETTLED_MS = 60_000

/** The event after the end of an attempt. */
export function afterEnd(
  spec: Pick<RunSpec, 'max_attempts' | 'backoff_ms' | 'on_lost' | 'daemon'>,
  attempt: number,
  { state, reason, durationMs }: Pick<RunEnding, 'state' | 'reason' | 'durationMs'>,
  random: number,
): AfterFailure {
  const isFinal = reason !== null && FINAL.has(reason)
  if (spec.daemon === true && state !== TASK_STATE.stopped && !isFinal) {
    const step = (durationMs ?? 0) >= SETTLED_MS ? 1 : attempt
    return { retry: true, delayMs: backoffMs(spec.backoff_ms, step, random) }
  }
  if (state !== TASK_STATE.failed || reason === null) return { retry: false }
  return afterFailure(spec, attempt, reason, random)
}

export type AfterFailure = { retry: false } | { retry: true; delayMs: number }

/** `random` is in [0, 1). `on_lost: fail` makes the loss of a worker final. */
export function afterFailure(
  spec: Pick<RunSpec, 'max_attempts' | 'backoff_ms' | 'on_lost' | 'daemon'>,
  attempt: number,
  reason: FailureReason,
  random: number,
): AfterFailure {
  if (FINAL.has(reason) || (reason === 'worker_lost' && spec.on_lost === 'fail')) return { retry: false }
  const attempts = spec.max_attempts ?? (NOT_THE_GUEST.has(reason) ? ATTEMPTS_FOR_LOSS : 1)
  if (attempt >= attempts && spec.daemon !== true) return { retry: false }
  return { retry: true, delayMs: backoffMs(spec.backoff_ms, attempt, random) }
}

/** The first backoff after the first attempt, doubling up to 100 s. */
export function backoffMs(firstMs: number, attempt: number, random: number): number {
  const plain = Math.min(firstMs * 2 ** Math.min(attempt - 1, 30), MAX_BACKOFF_MS)
  return Math.round(plain * (1 - JITTER + 2 * JITTER * random))
}

/** The longest pause after the first conflict; it doubles with each one. */
const FIRST_CONFLICT_MS = 60
/** Attempts that take longer, because of their function or of a busy machine, meet others for longer. */
const ATTEMPT_TIMES = 4
const MAX_CONFLICT_MS = 60_000

/**
 * The pause before a run is repeated whose state others have changed, after so many conflicts before. `attemptMs`: from its assignment to its conflict.
 * It is anything up to a limit, so that runs that met do not meet again, and at least 1 ms.
 */
export function conflictDelayMs(before: number, attemptMs: number, random: number): number {
  const longestMs = Math.max(FIRST_CONFLICT_MS, ATTEMPT_TIMES * attemptMs) * 2 ** before
  return 1 + Math.round(Math.min(longestMs, MAX_CONFLICT_MS) * random)
}
