/**
 * The state of a rule for one client and series, as plain JSON. Times are those of the server in milliseconds, which the caller passes: a message
 * counts when it arrives, since a clock of a device may be wrong by years.
 *
 * idle → pending: the condition holds, and must hold for `forMs`, or a cooldown has not ended.
 * pending → idle: the condition does not hold.
 * pending → active: the time has passed; `raise`.
 * active → active: the condition holds; `repeat`. It holds while the alarm waits to be cleared: the wait ends.
 * active → idle: the alarm may be cleared, and so for `clearForMs`; `clear`. A new alarm waits for `cooldownMs`.
 */

export type RuleTiming = { forMs: number; clearForMs: number; cooldownMs: number }

export type RuleState =
  | { status: 'idle'; quietUntilMs?: number }
  | { status: 'pending'; sinceMs: number; cause: string; quietUntilMs?: number }
  | { status: 'active'; sinceMs: number; cause: string; count: number; clearingSinceMs?: number; clearCause?: string }

export type RuleSample = {
  atMs: number
  /** The result of the condition. */
  holds: boolean
  /** The result of `clear_when`; undefined if the rule has none, which is the negation of the condition. */
  clears?: boolean | undefined
  /** The position or the id of the message. */
  cause: string
}

/** `atMs` is when the state changed, which is before the call if a time had passed. `cause` is the message that began it. */
export type RuleEffect = { kind: 'raise' | 'repeat' | 'clear'; atMs: number; cause: string }

export type Advanced = { state: RuleState; effects: readonly RuleEffect[] }

export const IDLE: RuleState = { status: 'idle' }
const NO_EFFECTS: readonly RuleEffect[] = []

/** When the state changes without a message; undefined if it does not. */
export function dueAt(timing: RuleTiming, state: RuleState): number | undefined {
  if (state.status === 'pending') return Math.max(state.sinceMs + timing.forMs, state.quietUntilMs ?? -Infinity)
  if (state.status === 'active' && state.clearingSinceMs !== undefined) return state.clearingSinceMs + timing.clearForMs
  return undefined
}

/** What the passed time changes. */
export function advanceTime(timing: RuleTiming, state: RuleState, nowMs: number): Advanced {
  const dueMs = dueAt(timing, state)
  if (dueMs === undefined || nowMs < dueMs) return { state, effects: NO_EFFECTS }
  if (state.status === 'pending') return raise(state.cause, dueMs)
  if (state.status === 'active') return clear(timing, state.clearCause ?? state.cause, dueMs)
  return { state, effects: NO_EFFECTS }
}

/** What a message changes, after the time before it. */
export function advance(timing: RuleTiming, before: RuleState, sample: RuleSample): Advanced {
  const passed = advanceTime(timing, before, sample.atMs)
  const next = applySample(timing, passed.state, sample)
  if (passed.effects.length === 0) return next
  return { state: next.state, effects: [...passed.effects, ...next.effects] }
}

function raise(cause: string, atMs: number): Advanced {
  return {
    state: { status: 'active', sinceMs: atMs, cause, count: 1 },
    effects: [{ kind: 'raise', atMs, cause }],
  }
}

function clear({ cooldownMs }: RuleTiming, cause: string, atMs: number): Advanced {
  return {
    state: cooldownMs > 0 ? { status: 'idle', quietUntilMs: atMs + cooldownMs } : IDLE,
    effects: [{ kind: 'clear', atMs, cause }],
  }
}

function applySample(timing: RuleTiming, state: RuleState, { atMs, holds, clears, cause }: RuleSample): Advanced {
  switch (state.status) {
    case 'idle': {
      const isQuiet = state.quietUntilMs !== undefined && atMs < state.quietUntilMs
      if (!holds) return { state: state.quietUntilMs === undefined || isQuiet ? state : IDLE, effects: NO_EFFECTS }
      const pending = isQuiet
        ? { status: 'pending' as const, sinceMs: atMs, cause, quietUntilMs: state.quietUntilMs as number }
        : { status: 'pending' as const, sinceMs: atMs, cause }
      return advanceTime(timing, pending, atMs)
    }
    case 'pending': {
      if (holds) return { state, effects: NO_EFFECTS }
      const isQuiet = state.quietUntilMs !== undefined && atMs < state.quietUntilMs
      return {
        state: isQuiet ? { status: 'idle', quietUntilMs: state.quietUntilMs as number } : IDLE,
        effects: NO_EFFECTS,
      }
    }
    case 'active':
      return applyToActive(timing, state, { atMs, holds, clears, cause })
  }
}

type ActiveState = Extract<RuleState, { status: 'active' }>

/** An alarm whose condition holds is not cleared, whatever `clear_when` says. */
function applyToActive(timing: RuleTiming, state: ActiveState, { atMs, holds, clears, cause }: RuleSample): Advanced {
  const { sinceMs, cause: first, count } = state
  if (holds) {
    return {
      state: { status: 'active', sinceMs, cause: first, count: count + 1 },
      effects: [{ kind: 'repeat', atMs, cause }],
    }
  }
  // Between the condition and `clear_when`, the alarm stays, and a wait to be cleared is broken.
  if (clears === false) {
    const isWaiting = state.clearingSinceMs !== undefined
    return { state: isWaiting ? { status: 'active', sinceMs, cause: first, count } : state, effects: NO_EFFECTS }
  }
  if (state.clearingSinceMs !== undefined) return { state, effects: NO_EFFECTS }
  return advanceTime(timing, { ...state, clearingSinceMs: atMs, clearCause: cause }, atMs)
}
